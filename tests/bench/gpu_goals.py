"""What the engine was to show on one H200, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.bench.gpu_lines import EngineRun, Figure, figures_of


@dataclass(frozen=True)
class Goal:
    """A figure, at least or at most so much; `value` None: it was not measured."""

    text: str
    bound: float
    value: float | None
    is_at_most: bool = False
    pattern: str = "{:,.2f}"

    @property
    def is_met(self) -> bool:
        """Whether it was measured and suffices."""
        if self.value is None:
            return False
        return self.value <= self.bound if self.is_at_most else self.value >= self.bound

    @property
    def wanted(self) -> str:
        """The bound in words."""
        return f"{'≤' if self.is_at_most else '≥'} {self.format(self.bound)}"

    def format(self, value: float) -> str:
        """As figures of this kind are written."""
        return self.pattern.format(value)


def goals(runs: Sequence[EngineRun]) -> Iterator[Goal]:
    """In the order of what was promised."""
    for name, is_large in (("8B", True), ("SmolLM2", False)):
        for kind in ("same", "regex"):
            beside = _find(
                runs, "main", "neighbours", is_large, lambda one, k=kind: one["beside"] == k
            )
            ratio = None if beside is None else beside["ratio"]
            yield Goal(
                f"{name}, 127 plain requests beside one {kind}", 0.97, ratio, pattern="{:.3f}"
            )
    yield from _plain_goals(runs)
    yield from _structured_goals(runs)
    prefill = _find(runs, "main", "prefill", True, lambda one: "tflops" in one)
    share = None if prefill is None else prefill["share_of_matrix_rate"]
    yield Goal("8B, prefill, of the matrix rate", 0.55, share, pattern="{:.1%}")
    for name, is_large in (("8B", True), ("SmolLM2", False)):
        pairs = _find(runs, "main", "first-token", is_large, lambda one: one["kind"] == "pairs")
        added = None if pairs is None else pairs["fresh_minus_warm_ms"]["p50"]
        yield Goal(f"{name}, first token of a new schema, ms more", 2.0, added, is_at_most=True)
    start_ups = [run.engine["start_up_s"] for run in runs if run.is_large and run.stage == "main"]
    start_up = start_ups[-1] if start_ups else None
    yield Goal("8B, start-up in s", 30.0, start_up, is_at_most=True, pattern="{:.1f}")


def _plain_goals(runs: Sequence[EngineRun]) -> Iterator[Goal]:
    one = _cell(runs, True, "plain", 1)
    token_ms = None if one is None else one["token_ms"]
    yield Goal("8B plain, c = 1, ms a token", 4.6, token_ms, is_at_most=True)
    for name, is_large, size, bound in (
        ("8B", True, 32, 5_700),
        ("8B", True, 128, 17_500),
        ("SmolLM2", False, 1, 1_200),
        ("SmolLM2", False, 128, 65_000),
    ):
        cell = _cell(runs, is_large, "plain", size)
        speed = None if cell is None else cell["tokens_per_second"]
        yield Goal(f"{name} plain, c = {size}, tokens/s", bound, speed, pattern="{:,.0f}")
    step = _find(
        runs,
        "steps",
        "steps",
        True,
        lambda one: one["by"] == "guesses" and (one["requests"], one["guesses"]) == (128, 4),
    )
    # what it is compared with is a bare step, without an engine around it
    step_ms = None if step is None else sum(step.get("device_ms", {}).values()) or None
    yield Goal("8B, a step of 128 × 5 positions, ms of the device", 18.0, step_ms, is_at_most=True)


def _structured_goals(runs: Sequence[EngineRun]) -> Iterator[Goal]:
    for name, is_large, test, size, bound in (
        *(("8B", True, test, size, 0.95) for test in ("same", "regex") for size in (1, 8, 32)),
        *(("8B", True, test, 128, 0.85) for test in ("same", "regex")),
        ("SmolLM2", False, "same", 128, 0.6),
    ):
        cell = _cell(runs, is_large, test, size)
        ratio = None if cell is None else cell["ratio_to_plain"]
        yield Goal(f"{name}, {test} ÷ plain, c = {size}", bound, ratio)


def _cell(runs: Sequence[EngineRun], is_large: bool, test: str, size: int) -> Figure | None:
    return _find(
        runs, "main", "speed", is_large, lambda one: (one["test"], one["requests"]) == (test, size)
    )


def _find(
    runs: Sequence[EngineRun],
    stage: str,
    part: str,
    is_large: bool,
    is_meant: Callable[[Figure], bool],
) -> Figure | None:
    found = figures_of(runs, stage, part, is_large=is_large)
    return next((one for one in found if is_meant(one)), None)
