"""Sets of tools: what calls may be written, and that what was written is read back."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import Envelope, JsonSchema, Tools
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar, FillJob
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.router import route
from structspec.grammars.tool_calls import Call, read_calls
from structspec.grammars.tools import rebase
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import backend

CITY = {"type": "object", "properties": {"city": {"enum": ["Ur", "}\n<"]}}, "required": ["city"]}
NUMBERS = {"type": "object", "properties": {"n": {"type": "array", "items": {"enum": [1, 2]}}}}
TOOLS = [
    {"type": "function", "function": {"name": "go", "parameters": CITY}},
    {"name": "go_on", "parameters": NUMBERS},
    {"name": "stop"},
]
ANSWER = JsonSchema({"type": "object", "properties": {"ok": {"type": "boolean"}}})
TEXTUAL = [name for name in get_args(Envelope) if name != "harmony"]

# one call and two calls, as each family's own template writes them
WRITTEN: dict[str, tuple[str, str]] = {
    "hermes": (
        '<tool_call>\n{"name": "go", "arguments": {"city": "Ur"}}\n</tool_call>',
        '<tool_call>\n{"name": "go", "arguments": {"city": "Ur"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
    ),
    "llama3": (
        '{"name": "go", "parameters": {"city": "Ur"}}',
        '{"name": "go", "parameters": {"city": "Ur"}}; {"name": "stop", "parameters": {}}',
    ),
    "mistral": (
        '[TOOL_CALLS][{"name": "go", "arguments": {"city": "Ur"}}]',
        '[TOOL_CALLS][{"name": "go", "arguments": {"city": "Ur"}}, '
        '{"name": "stop", "arguments": {}}]',
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n"
        '```json\n{"city": "Ur"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n"
        '```json\n{"city": "Ur"}\n```<｜tool▁call▁end｜>\n'
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n"
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "json": (
        '{"name": "go", "arguments": {"city": "Ur"}}',
        '{"name": "go", "arguments": {"city": "Ur"}}\n{"name": "stop", "arguments": {}}',
    ),
}
ENVELOPES = pytest.mark.parametrize("envelope", TEXTUAL)
OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto-single": {"parallel": False},
    "required": {"choice": "required"},
    "required-single": {"choice": "required", "parallel": False},
    "named": {"choice": "go"},
    "none": {"choice": "none"},
    "union": {"response": ANSWER},
    "union-single": {"response": ANSWER, "parallel": False},
    "none-answer": {"choice": "none", "response": ANSWER},
}


@cache
def compiled(envelope: str, options: str) -> CompiledGrammar:
    return backend("bytes", "llguidance").compile(Tools(TOOLS, envelope, **OPTIONS[options]))


def takes(envelope: str, options: str, text: str) -> bool:
    matcher = compiled(envelope, options).matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


@ENVELOPES
@pytest.mark.parametrize(
    ("options", "one", "two", "free", "free_then_one", "answer"),
    [
        ("auto", True, True, True, True, None),
        ("auto-single", True, False, True, True, None),
        ("required", True, True, False, False, False),
        ("required-single", True, False, False, False, False),
        ("named", True, False, False, False, False),
        ("none", False, False, True, False, None),
        ("union", True, True, False, False, True),
        ("union-single", True, False, False, False, True),
        ("none-answer", False, False, False, False, True),
    ],
)
def test_choice_and_parallel_say_what_may_be_written(
    envelope, options, one, two, free, free_then_one, answer
):
    first, both = WRITTEN[envelope]
    assert takes(envelope, options, first) == one
    assert takes(envelope, options, both) == two
    assert takes(envelope, options, "It is late.") == free
    assert takes(envelope, options, f"Let me see.\n{first}") == free_then_one
    if answer is not None:
        assert takes(envelope, options, '{"ok": true}') == answer


@ENVELOPES
def test_no_other_name_and_no_other_arguments_are_written(envelope):
    first, _ = WRITTEN[envelope]
    for wrong in (
        first.replace("go", "gone"),
        first.replace("go", "stop"),
        first.replace("Ur", "Rome"),
        first.replace('{"city": "Ur"}', "{}"),
        first[:-1],
    ):
        assert not takes(envelope, "auto", wrong)
        assert not takes(envelope, "required", wrong)


@ENVELOPES
@pytest.mark.parametrize("options", OPTIONS)
def test_no_text_of_a_set_of_tools_is_lost(envelope, options):
    assert route(Tools(TOOLS, envelope, **OPTIONS[options]))[0] == "llguidance"


def test_the_calls_are_read_with_the_places_of_their_names_and_arguments():
    text = 'So: <tool_call>\n{"name": "go", "arguments": {"city": "Ur"}}\n</tool_call>'
    assert read_calls(text, "hermes") == [Call("go", '{"city": "Ur"}', 26, 44)]
    assert text[26:28] == "go"
    assert text[44:] == '{"city": "Ur"}}\n</tool_call>'


@ENVELOPES
@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(numbers=st.lists(st.integers(0, 10**6), min_size=3, max_size=30))
def test_every_text_a_set_of_tools_allows_is_read_back(envelope, options, numbers):
    text = written(compiled(envelope, options), numbers)
    calls = read_calls(text, envelope)
    schemas = {"go": CITY, "go_on": NUMBERS, "stop": {}}
    for call in calls:
        arguments = json.loads(call.arguments)
        assert set(schemas[call.name].get("required", ())) <= arguments.keys()
        assert text.startswith(call.name, call.name_start)
        assert text.startswith(call.arguments, call.arguments_start)
    is_answer = text in ('{"ok": true}', '{"ok": false}', "{}")
    if options in ("named", "required-single"):
        assert len(calls) == 1
    elif options == "required" or (options.startswith("union") and not is_answer):
        assert calls
    elif options.startswith("none") or is_answer:
        assert not calls
    if "single" in options:
        assert len(calls) <= 1
    if calls:
        free = text.removesuffix(spelled(envelope, [(c.name, c.arguments) for c in calls]))
        assert free != text, "what was read is not what was written"
        assert not free or options.startswith("auto")


def spelled(envelope: str, calls: list[tuple[str, str]]) -> str:
    """Calls as the family writes them."""
    if envelope == "hermes":
        return "\n".join(
            f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
            for name, arguments in calls
        )
    if envelope == "deepseek":
        each = "\n".join(
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```"
            "<｜tool▁call▁end｜>"
            for name, arguments in calls
        )
        return f"<｜tool▁calls▁begin｜>{each}<｜tool▁calls▁end｜>"
    key = "parameters" if envelope == "llama3" else "arguments"
    objects = [f'{{"name": "{name}", "{key}": {arguments}}}' for name, arguments in calls]
    if envelope == "mistral":
        return f"[TOOL_CALLS][{', '.join(objects)}]"
    return ("; " if envelope == "llama3" else "\n").join(objects)


def written(grammar: CompiledGrammar, numbers: list[int]) -> str:
    """A text from a walk: forced text whole, a random byte where there is a choice, to an end."""
    matcher = grammar.matcher()
    data = bytearray()
    bitmask = allocate_bitmask(1, 257)
    for step in range(4000):
        matcher.fill(bitmask, 0)
        choices = np.flatnonzero(unpack_row(bitmask[0], 257)).tolist()
        printable = [t for t in choices if t == 10 or 32 <= t < 127 or t == 256] or choices
        number = numbers[step % len(numbers)] + step
        calling = [t for t in printable if t in {*b'<[{"]}', 0xEF}] if number % 2 else []
        likely = calling or printable
        ending = [t for t in (256, *b"]}<") if t in choices] if step > 200 else []
        token_id = ending[0] if ending else likely[number % len(likely)]
        assert matcher.accept(token_id)
        if token_id == 256:
            return data.decode()
        data.append(token_id)
    raise AssertionError("the text does not end")


@ENVELOPES
def test_a_call_that_is_cut_short_is_not_read(envelope):
    first, both = WRITTEN[envelope]
    [call] = read_calls(first, envelope)
    assert read_calls(first[: call.arguments_start + 5], envelope) == []
    assert [c.name for c in read_calls(both, envelope)] == ["go", "stop"]
    assert [c.name for c in read_calls(both[: len(first) + 30], envelope)] == ["go"]


@pytest.mark.parametrize(
    ("tools", "options", "pointer"),
    [
        ([3], {}, "#/0"),
        ([{"type": "custom", "name": "a"}], {}, "#/0"),
        ([{"type": "function", "function": {"name": ""}}], {}, "#/0/function/name"),
        ([{"name": 'a"b'}], {}, "#/0/name"),
        ([{"name": "a"}, {"name": "a"}], {}, "#/1"),
        ([{"name": "a", "parameters": 3}], {}, "#/0/parameters"),
        ([], {"choice": "required"}, "#"),
        ([{"name": "a"}], {"choice": "b"}, "#"),
        ([{"name": "a"}], {"envelope": "smoke"}, None),
    ],
)
def test_a_wrong_set_of_tools_is_refused_with_a_pointer(tools, options, pointer):
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(Tools(tools, **options))
    assert caught.value.pointer == pointer


def test_an_error_in_the_parameters_has_its_place_in_the_list():
    tools = [{"function": {"name": "a", "parameters": {"properties": {"x": {"type": "strin"}}}}}]
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(Tools(tools))
    place = "#/0/function/parameters/properties/x"
    assert (caught.value.pointer or "").startswith(place)


def test_tools_that_need_special_tokens_say_so_where_there_are_none():
    with pytest.raises(UnsupportedConstraint, match=r"<\|channel\|>"):
        backend("bytes", "llguidance").compile(Tools(TOOLS, "harmony"))


def test_references_inside_a_schema_follow_it_to_its_place():
    schema = {"$ref": "#/$defs/a", "const": {"$ref": "#/$defs/a"}, "anyOf": [{"$ref": "#"}]}
    assert rebase(schema, "/x/0") == {
        "$ref": "#/x/0/$defs/a",
        "const": {"$ref": "#/$defs/a"},
        "anyOf": [{"$ref": "#/x/0"}],
    }


@pytest.mark.parametrize("envelope", ["json", "hermes"])
def test_parameters_may_refer_to_their_own_definitions(envelope):
    tree = {
        "type": "object",
        "properties": {"sub": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "object", "properties": {"sub": {"$ref": "#/$defs/tree"}}}},
    }
    constraint = Tools([{"name": "grow", "parameters": tree}], envelope, response=ANSWER)
    matcher = backend("bytes", "llguidance").compile(constraint).matcher()
    text = '{"name": "grow", "arguments": {"sub": {"sub": {}}}}'
    if envelope == "hermes":
        text = f"<tool_call>\n{text}\n</tool_call>"
    assert all(map(matcher.accept, text.encode()))
    assert matcher.accept(256)


HARMONY = ("<|channel|>", "<|constrain|>", "<|message|>", "<|call|>")


@cache
def with_special_tokens() -> LLGuidanceBackend:
    """Bytes, the markers of two families, of which the last of the first ends the text."""
    names = (*HARMONY, "[TOOL_CALLS]")
    tokens = (*(bytes([i]) for i in range(256)), *(None for _ in names))
    ids = {name: 256 + i for i, name in enumerate(names)}
    return LLGuidanceBackend(Vocabulary(tokens, (259,), lambda text: list(text.encode()), ids))


def ids_of(*pieces: str) -> list[int]:
    special = with_special_tokens().vocabulary.special_tokens
    return [
        token_id
        for piece in pieces
        for token_id in ([special[piece]] if piece in special else piece.encode())
    ]


CALL = ids_of(
    "<|channel|>", "commentary to=functions.go ", "<|constrain|>", "json", "<|message|>",
    '{"city": "Ur"}',
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "token_ids", "is_allowed"),
    [
        ({}, CALL, True),
        ({}, ids_of("<|channel|>", "final", "<|message|>", "It is late."), True),
        ({"response": ANSWER}, ids_of("<|channel|>", "final", "<|message|>", '{"ok": true}'), True),
        ({"response": ANSWER}, ids_of("<|channel|>", "final", "<|message|>", "late"), False),
        ({"choice": "required"}, ids_of("<|channel|>", "final"), False),
        ({}, list(b"<|channel|>final"), False),
        ({}, [*CALL, *CALL], False),
    ],
)
def test_special_tokens_of_an_envelope_are_written_as_tokens(options, token_ids, is_allowed):
    matcher = with_special_tokens().compile(Tools(TOOLS, "harmony", **options)).matcher()
    assert (all(map(matcher.accept, token_ids)) and matcher.accept(259)) == is_allowed


def test_calls_with_special_tokens_are_read_from_text_that_spells_them():
    text = with_special_tokens().vocabulary.spell_bytes([*CALL, 259]).decode()
    [call] = read_calls(text, "harmony")
    assert (call.name, call.arguments) == ("go", '{"city": "Ur"}')


def test_a_marker_is_a_token_where_the_vocabulary_has_it_and_else_text():
    first, _ = WRITTEN["mistral"]
    matcher = with_special_tokens().compile(Tools(TOOLS, "mistral", "required")).matcher()
    assert not matcher.accept(ord("["))
    assert all(map(matcher.accept, ids_of("[TOOL_CALLS]", first.removeprefix("[TOOL_CALLS]"))))
    assert matcher.accept(259)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=60))
def test_the_laws_of_matchers_hold_with_special_tokens(steps):
    library = with_special_tokens()
    matcher = library.compile(Tools(TOOLS, "harmony")).matcher()
    bitmask = allocate_bitmask(1, 261)
    rows: list[list[int]] = []
    for is_forward, number in steps:
        matcher.fill(bitmask, 0)
        choices = np.flatnonzero(unpack_row(bitmask[0], 261)).tolist()
        assert choices and not set(choices) - set(range(260))
        forced = matcher.forced(50)
        assert forced.decode().isascii()
        assert not forced or choices == [forced[0]]
        if is_forward or not rows:
            rejected = number % 261
            if rejected not in choices:
                assert not matcher.accept(rejected)
            rows.append(choices)
            assert matcher.accept(choices[number % len(choices)])
        else:
            matcher.rollback(1)
            matcher.fill(bitmask, 0)
            assert np.flatnonzero(unpack_row(bitmask[0], 261)).tolist() == rows.pop()


def test_drafts_with_special_tokens_are_walked():
    library = with_special_tokens()
    matchers = [library.compile(Tools(TOOLS, "harmony")).matcher() for _ in range(2)]
    jobs = [FillJob(matcher, i * 30, CALL[:29]) for i, matcher in enumerate(matchers)]
    bitmask = allocate_bitmask(60, 261)
    library._parallel_above_s = 0.0
    assert library.fill_drafts(jobs, bitmask) == [29, 29]
