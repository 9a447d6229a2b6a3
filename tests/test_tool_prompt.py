"""Tools told in words: calls that were made stand in prompts as the model wrote them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from structspec import GrammarCompiler, Tools, Vocabulary
from structspec.tool_prompt import tell_tools
from tests.grammars.json_texts import STOP

TOOL = {
    "name": "forecast",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["city", "days"],
    },
}
TOOLS = Tools([TOOL], envelope="json", choice="required")
with GrammarCompiler(Vocabulary.bytes()) as compiler:
    COMPILED = compiler.submit(TOOLS).result()

letters = st.characters(exclude_categories=("Cs", "Cc"))
arguments_of_calls = st.tuples(  # in the schema's order
    st.text(letters, max_size=9), st.lists(st.integers(-99, 99), max_size=3)
).map(lambda values: dict(zip(("city", "days"), values, strict=True)))


@given(st.lists(arguments_of_calls, min_size=1, max_size=2))
def test_calls_are_told_in_a_text_that_the_grammar_would_have_had_written(
    arguments: list[dict[str, Any]],
) -> None:
    calls = [{"function": {"name": "forecast", "arguments": one}} for one in arguments]
    told = tell_tools([{"role": "assistant", "tool_calls": calls}], [TOOL], "json")
    matcher = COMPILED.matcher()
    assert all(map(matcher.accept, told[-1]["content"].encode()))
    assert matcher.accept(STOP)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(json_values, json_values)
def test_tools_are_told_whatever_stands_where_their_schema_should(
    parameters: object, properties: object
) -> None:
    for one in (parameters, {"type": "object", "properties": properties}):
        tool = {"name": "f", "parameters": one}
        assert '"f"' in tell_tools([], [tool], "json")[0]["content"]
