"""The page of the engine's figures on a GPU, beside vLLM's, from the lines of gpu_figures.py.

    python -m tests.bench.gpu_report docs/benchmarks.md LINES...

What stands between the page's two marks is replaced; without marks it goes to the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.bench import gpu_anchor
from tests.bench.gpu_goals import goals
from tests.bench.gpu_lines import EngineRun, Figure, figures_of, read_runs, run_of

BEGIN, END = "<!-- the GPU engine: begin -->", "<!-- the GPU engine: end -->"
_NAMES = {True: "8B shape, random weights", False: "SmolLM2-135M"}
_SIZES = (1, 8, 32, 128, 256)

_TESTS = (
    "`plain`: no constraint. `same`: one schema for all requests, 40 to 60 records of it. `pool`:"
    " 16 such schemas in turn. `fresh`: each request a schema that none before had. `regex`:"
    " `[a-z ]{1200,2000}`. `copy`: a document from the prompt with one change, as its schema says."
    " Strings have a `maxLength`. All outputs but those of `copy` run to the same length. In"
    " brackets: beside `plain` with as many requests, the median over rounds that ran both. Here"
    " nothing is drafted."
)
_GUESSES = (
    "`plain` has no grammar to draft from, only n-grams. How much is guessed follows from what"
    " steps of so many rows cost and from what held so far; where it does not pay, only what a"
    " grammar leaves no choice about is drafted."
)
_TURNS = (
    "Tokens per second of the 127. Alone, beside one more plain request (what any costs), one held"
    " by a schema, one held by a long regex: the four take turns, and a ratio is taken within a"
    " round. Intervals are order statistics."
)
_WAITS = (
    "One request at a time, from the call, before its schema is read, to the one token it asks for;"
    " the prompt was computed before."
)
_OPERATIONS = (
    "Operations are those that are needed: products of the layers, logits of each prompt's last"
    " token alone, attention over the keys that each token sees."
)
_STEPS = (
    "Means over the steps in which all requests write; 96 tokens a request. Without guesses a step"
    " is launched before the one before it is read, so that the host's parts hide behind the device"
    " until they take longer."
)


_COMMAND = (
    "`structspec bench engine tests/data/structured-workload.json`, one process a line;"
    " `tests/bench/gpu_figures.py` runs such processes, and `gpu_report.py` makes this section of"
    " their lines."
)


def render(runs: Sequence[EngineRun]) -> str:
    """The whole section, marks included."""
    parts = [
        _head(runs),
        *_section("What it was to show", _goal_table(runs)),
        *_section("Tokens per second", _speed(runs), _TESTS),
        *_section("Drafts", _drafts(runs), _GUESSES),
        *_section("One structured request beside 127 plain ones", _neighbours(runs), _TURNS),
        *_section("Time to the first token", _first_token(runs), _WAITS),
        *_section("Reading prompts", _prefill(runs), _OPERATIONS),
        *_section("What batch_invariant costs", _invariant(runs)),
        *_section("Where a step's time goes", _steps(runs), _STEPS),
        *_section("Start-up and memory", _memory(runs)),
        *_section("What was run", _commands(runs), _COMMAND),
    ]
    return "\n\n".join([BEGIN, *parts, END]) + "\n"


def insert(page: str, section: str) -> str:
    """The page with the section in its place."""
    if BEGIN not in page:
        return page.rstrip() + "\n\n" + section
    before, _, rest = page.partition(BEGIN)
    return before + section.rstrip() + rest.partition(END)[2]


def _head(runs: Sequence[EngineRun]) -> str:
    engine = runs[0].engine
    commits = ", ".join(dict.fromkeys(run.commit for run in runs if run.commit)) or "unknown"
    return (
        "## The engine on a GPU\n\n"
        f"`structspec bench engine` ([what was run](#what-was-run)), commit {commits}, one"
        f" {engine['device']}, Python {engine['python']}, torch {engine['torch']}, Triton"
        f" {engine['triton']}; {engine['dtype']} weights, greedy, 256 tokens a request, medians"
        " over runs after a first. Weights of the 8B shape are random: its speed is that of such a"
        " model, its text is noise. vLLM's rows are vLLM 0.26.0 (xgrammar 0.2.7, llguidance 1.7.6)"
        " on the same kind of card and the same workload, another day: an aim, not a race."
    )


def _section(title: str, lines: Iterator[str], words: str = "") -> Iterator[str]:
    """With words on what was measured before the table; nothing where nothing was."""
    text = "\n".join(lines).rstrip()
    if text:
        yield "\n\n".join(filter(None, (f"### {title}", words, text)))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """In markdown, numbers to the right; nothing without rows."""
    if rows:
        yield f"| {' | '.join(headings)} |"
        yield f"|---|{'---:|' * (len(headings) - 1)}"
        yield from (f"| {' | '.join(row)} |" for row in rows)


def _goal_table(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = [
        [
            goal.text,
            goal.wanted,
            "not measured" if goal.value is None else goal.format(goal.value),
            "" if goal.value is None else "yes" if goal.is_met else "**no**",
        ]
        for goal in goals(runs)
    ]
    return table(("", "wanted", "measured", "met"), rows)


def _speed(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = []
    for is_large, theirs in ((True, gpu_anchor.LARGE), (False, gpu_anchor.SMALL)):
        found = figures_of(runs, "main", "speed", is_large=is_large)
        for test in dict.fromkeys(one["test"] for one in found):
            cells = {one["requests"]: one for one in found if one["test"] == test}
            ours = [_speed_text(cells.get(size)) for size in _SIZES]
            rows.append([f"{_NAMES[is_large]}: {test}", *ours])
            for backend, speeds in theirs.get(test, {}).items():
                others = [_anchor_text(speed) for speed in speeds]
                rows.append([f"  vLLM, {backend or 'no grammar'}", *others, ""])
    yield from table(("tokens/s (÷ plain)", *(f"c = {size}" for size in _SIZES)), rows)


def _speed_text(cell: Figure | None) -> str:
    if cell is None:
        return ""
    ratio = "" if cell["test"] == "plain" else f" ({cell['ratio_to_plain']:.2f})"
    failed = f", {cell['failed']} failed" if cell["failed"] else ""
    return f"**{cell['tokens_per_second']:,.0f}**{ratio}{failed}"


def _anchor_text(speed: int | None) -> str:
    return "" if speed is None else f"{speed:,}"


def _drafts(runs: Sequence[EngineRun]) -> Iterator[str]:
    found = figures_of(runs, "drafts", "drafts", is_large=False)
    rows = []
    for test in dict.fromkeys(one["test"] for one in found):
        cells = {one["requests"]: one for one in found if one["test"] == test}
        texts = [
            f"**{cells[size]['tokens_per_second']:,.0f}** ({cells[size]['tokens_per_step']:.2f})"
            if size in cells
            else ""
            for size in gpu_anchor.SIZES
        ]
        rows.append([f"{_NAMES[False]}: {test}", *texts])
        if test == "copy":
            rows.append(
                ["  vLLM, n-grams, xgrammar", *map(_anchor_text, gpu_anchor.SMALL_COPY_DRAFTS)]
            )
    headings = ("tokens/s (tokens a step)", *(f"c = {size}" for size in gpu_anchor.SIZES))
    yield from table(headings, rows)


def _neighbours(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = [
        [
            f"{_NAMES[is_large]}: {one['beside']}",
            f"{one['alone_tokens_per_second']:,.0f}",
            f"{one['beside_tokens_per_second']:,.0f}",
            f"**{one['ratio']:.3f}**",
            f"{one['interval'][0]:.3f} to {one['interval'][1]:.3f}",
            f"{one['pairs']}",
        ]
        for is_large in (True, False)
        for one in figures_of(runs, "main", "neighbours", is_large=is_large)
    ]
    headings = (
        "beside them",
        "their tokens/s alone",
        "beside it",
        "ratio, median",
        "interval (95 % or more)",
        "pairs",
    )
    yield from table(headings, rows)


def _first_token(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = []
    for is_large, size in ((True, "large"), (False, "small")):
        run = run_of(runs, "main", "first-token", is_large=is_large)
        if run is None:
            continue
        found = run.of_part("first-token")
        firsts = [one["ms"] for one in found if one["kind"] == "first"]
        # behind other parts, which had some of the schemas, none of them says what it is to say
        is_first = run.figures[0]["part"] == "first-token"
        for one in found:
            if one["kind"] != "pairs":
                continue
            added = one["fresh_minus_warm_ms"]
            low, high = added["interval"]
            rows.append(
                [
                    _NAMES[is_large],
                    *(f"{one[f'{kind}_ms']['p50']:.2f}" for kind in ("plain", "fresh", "warm")),
                    f"**{added['p50']:.2f}** ({low:.2f} to {high:.2f}) / {added['p90']:.2f}",
                    f"{firsts[0][0]:.1f}; then {max(firsts[0][1:], default=0.0):.1f} at most"
                    if is_first
                    else "",
                ]
            )
            for backend, (plain, fresh, warm) in gpu_anchor.FIRST_TOKEN[size].items():
                difference = f"{fresh - warm:g}"
                rows.append(
                    [f"  vLLM, {backend}", str(plain), str(fresh), str(warm), difference, ""]
                )
    headings = (
        "ms, p50",
        "no constraint",
        "schema with a new property",
        "the same again",
        "new − again: p50 (interval) / p90",
        "first schema of the process",
    )
    yield from table(headings, rows)


def _prefill(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = [
        [
            f"{_NAMES[is_large]}: {one['prompts']} × {one['prompt_tokens']:,}",
            f"{one['tokens_per_second']:,.0f}",
            f"{one['tflops']:.0f}",
            f"{one['matrix_tflops']:.0f}",
            f"**{one['share_of_matrix_rate']:.1%}**",
        ]
        for is_large in (True, False)
        for one in figures_of(runs, "main", "prefill", is_large=is_large)
        if "tflops" in one
    ]
    yield from table(("", "tokens/s", "TFLOP/s", "one large product's", "share"), rows)


def _invariant(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = []
    for is_large in (True, False):
        plain, held = (
            {
                one["requests"]: one["tokens_per_second"]
                for one in figures_of(runs, stage, "speed", is_large=is_large)
                if one["test"] == "plain"
            }
            for stage in ("main", "invariant")
        )
        rows += [
            [
                f"{_NAMES[is_large]}, c = {size}",
                f"{plain[size]:,.0f}",
                f"{held[size]:,.0f}",
                f"**{held[size] / plain[size]:.2f}**",
            ]
            for size in sorted(plain.keys() & held.keys())
        ]
    yield from table(("plain", "tokens/s", "with batch_invariant", "ratio"), rows)


def _steps(runs: Sequence[EngineRun]) -> Iterator[str]:
    for is_large in (True, False):
        found = figures_of(runs, "steps", "steps", is_large=is_large)
        measured = [one for one in found if "step_ms" in one]
        if not measured:
            continue
        name = "8b" if is_large else "smollm2"
        yield f"![{_NAMES[is_large]}: parts of a step](figures/steps-{name}.svg)\n"
        yield f"![{_NAMES[is_large]}: growth of a step](figures/growth-{name}.svg)\n"
        yield from table(
            (f"{_NAMES[is_large]}: ms a step", *(f"c = {size}" for size in _SIZES)),
            [*_by_test(measured), *_by(measured, "guesses"), *_by(measured, "context")],
        )
        yield ""


def _by_test(found: Sequence[Figure]) -> Iterator[list[str]]:
    for test in dict.fromkeys(one["test"] for one in found if one["by"] == "test"):
        for has_drafts in (False, True):
            cells = {
                one["requests"]: f"{one['step_ms']:.2f}{_device_text(one)}"
                for one in found
                if one["by"] == "test"
                and one["test"] == test
                and one["is_speculative"] == has_drafts
            }
            words = "with drafts (device busy)" if has_drafts else "(device busy)"
            yield [f"{test} {words}", *(cells.get(size, "") for size in _SIZES)]


def _device_text(one: Figure) -> str:
    return f" ({sum(one['device_ms'].values()):.2f})" if one["device_ms"] else ""


def _by(found: Sequence[Figure], kind: str) -> Iterator[list[str]]:
    texts: dict[str, Callable[[Figure], str]] = {
        "guesses": lambda one: f"{one['guesses']} random guesses a request",
        "context": lambda one: f"plain, a context of {one['context']:,}",
    }
    chosen = [one for one in found if one["by"] == kind]
    for value in dict.fromkeys(one[kind] for one in chosen):
        cells = {one["requests"]: one for one in chosen if one[kind] == value}
        text = texts[kind](next(iter(cells.values())))
        yield [text, *(f"{cells[n]['step_ms']:.2f}" if n in cells else "" for n in _SIZES)]


def _memory(runs: Sequence[EngineRun]) -> Iterator[str]:
    rows = [
        [
            f"{_NAMES[run.is_large]}, {run.stage}",
            f"{run.engine['start_up_s']:.1f}",
            f"{run.engine['kv_tokens']:,}",
            *(
                f"{after[0][name]:.1f}"
                if (after := run.of_part("memory")) and name in after[0]
                else ""
                for name in ("most_allocated_gib", "free_gib", "total_gib")
            ),
        ]
        for run in runs
    ]
    headings = ("", "start-up s", "KV tokens", "GiB allocated at most", "free at the end", "of")
    yield from table(headings, rows)


def _commands(runs: Sequence[EngineRun]) -> Iterator[str]:
    for run in runs:
        yield f"- {_NAMES[run.is_large]}, {run.stage}: `{run.options}`"


def main() -> None:
    page, *lines = map(Path, sys.argv[1:])
    page.write_text(
        insert(page.read_text(encoding="utf-8"), render(read_runs(lines))), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
