"""The page's scripts that know no page, run in a browser against what Python says."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.playground.browser import Browser

few = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# Not all of Unicode: halves of surrogate pairs do not travel to the browser and back.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
containers = values.filter(lambda value: isinstance(value, dict | list))


@pytest.fixture(scope="module")
def scripts(chromium: Browser, url: str) -> Browser:
    chromium.open(url)
    return chromium


def call(scripts: Browser, module: str, body: str, *arguments: Any) -> Any:
    """What a function body returns, with the module's exports as `m` and arguments as `a`."""
    return scripts.run(
        f"const a = arguments; return import('/playground/{module}').then((m) => {{{body}}})",
        *arguments,
    )


@few
@given(value=containers, style=st.sampled_from([(", ", ": "), (",", ":")]), seed=st.integers())
def test_json_is_laid_out_as_python_indents_it_however_it_is_cut(
    scripts: Browser, value: Any, style: tuple[str, str], seed: int
) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=style)
    source, pieces = random.Random(seed), []
    while text:
        size = source.randint(1, 5)
        pieces.append(text[:size])
        text = text[size:]
    laid_out = call(
        scripts,
        "layout.js",
        "const layout = new m.Layout();"
        "return a[0].flatMap((piece) => layout.feed(piece)).map((one) => one.text).join('')",
        pieces,
    )
    assert laid_out == json.dumps(value, ensure_ascii=False, indent=2)


@few
@given(value=values)
def test_every_part_is_found_by_its_pointer(scripts: Browser, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    read, places = call(
        scripts,
        "json_places.js",
        "const {value, places} = m.readJson(a[0]);"
        "return [value, [...places].map(([path, [from, to]]) => [path, a[0].slice(from, to)])]",
        text,
    )
    assert read == value
    assert {path: part for path, part in places} == dict(parts(value, ""))


def parts(value: Any, path: str, key: str | None = None) -> Any:
    """Each part's pointer and text; a member of an object is told with its key."""
    text = indented(value, path.count("/"))
    yield path, text if key is None else f"{json.dumps(key, ensure_ascii=False)}: {text}"
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from parts(inner, f"{path}/{name.replace('~', '~0').replace('/', '~1')}", name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from parts(inner, f"{path}/{index}")


def indented(value: Any, depth: int) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    if not isinstance(value, dict | list):
        return text
    return text.replace("\n", "\n" + " " * depth)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", 0),
        ("{", 1),
        ('{"a": 1,}', 8),
        ("[1 2]", 3),
        ("01", 1),
        ('"\n"', 0),
        ("nul", 0),
        ("1 1", 2),
    ],
)
def test_what_is_not_json_is_refused_at_its_place(scripts: Browser, text: str, at: int) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    body = "try { m.readJson(a[0]) } catch (fault) { return fault.at }"
    assert call(scripts, "json_places.js", body, text) == at


def test_a_pointer_to_what_is_missing_names_what_is_around_it(scripts: Browser) -> None:
    body = "const {places} = m.readJson(a[0]); return m.findPlace(places, a[1])"
    assert call(scripts, "json_places.js", body, '{"a": {"b": 1}}', "#/a/c/d") == [1, 14]
    assert call(scripts, "json_places.js", body, '{"a": 1}', "#") == [0, 8]


@few
@given(value=values)
def test_values_are_written_as_python_reads_them(scripts: Browser, value: Any) -> None:
    written = call(scripts, "snippets.js", "return m.literal(a[0])", value)
    assert eval(written, {}) == value


def test_every_example_is_a_constraint_that_the_engine_takes(scripts: Browser) -> None:
    from structspec import Choice, Grammar, GrammarCompiler, JsonSchema, Regex, Tools, Vocabulary

    examples = call(scripts, "examples.js", "return m.EXAMPLES")
    make = {
        "schema": lambda text: JsonSchema(json.loads(text)),
        "tools": lambda text: Tools(json.loads(text), choice="required", parallel=False),
        "regex": Regex,
        "choice": lambda text: Choice(tuple(text.split("\n"))),
        "grammar": Grammar,
    }
    compiler = GrammarCompiler(Vocabulary.bytes(), num_threads=1)
    try:
        reports = [
            compiler.submit(make[one["kind"]](one["constraint"])).result().report
            for one in examples
            if one["kind"] != "text"
        ]
    finally:
        compiler.close()
    assert len(reports) == 6
    assert [finding for report in reports for finding in report.refused] == []
