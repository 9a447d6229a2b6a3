"""Texts of tool calls and structural tags: read back, and held to every schema inside."""

from __future__ import annotations

import json
import random
import re
from concurrent.futures import Future
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import (
    LLM,
    GrammarError,
    InvalidRequest,
    JsonSchema,
    OutputInvalid,
    SamplingParams,
    StructuralTag,
    ToolCall,
    Tools,
    UnsupportedConstraint,
    Vocabulary,
    explain,
    parse_tool_calls,
)
from structspec.constraint import Envelope
from structspec.generation import to_generation
from structspec.grammars.envelopes import ENVELOPES
from structspec.grammars.form import (
    AnyText,
    Either,
    Form,
    Json,
    Pattern,
    Repeat,
    Sequence,
    Text,
    either,
    sequence,
)
from structspec.grammars.form_reading import reads
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.options import resolve_options
from structspec.policy import can_validate, check_report
from structspec.request import Request, RequestStatus
from structspec.text_target import target_of
from tests.grammars.cases import backend
from tests.walks import walk

UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
PICK = {
    "type": "object",
    "properties": {"ids": UNIQUE, "why": {"type": "string"}},
    "required": ["ids"],
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "pick", "parameters": PICK}},
    {"name": "stop", "parameters": {"type": "object", "properties": {}}},
]
ANSWER = JsonSchema({"type": "object", "properties": {"ok": UNIQUE}, "required": ["ok"]})
ALL = pytest.mark.parametrize("envelope", get_args(Envelope))


def written(envelope: Envelope, *calls: tuple[str, str]) -> str:
    """Calls in the texts of an envelope."""
    fixed = ENVELOPES[envelope]
    each = (
        f"{fixed.before_name}{name}{fixed.before_arguments}{arguments}{fixed.after_arguments}"
        for name, arguments in calls
    )
    return fixed.opening + (fixed.separator or "").join(each) + fixed.closing


def answer(envelope: Envelope, text: str) -> str:
    return ENVELOPES[envelope].before_answer + text


arguments = st.fixed_dictionaries(
    {"ids": st.lists(st.integers(0, 99), unique=True, max_size=3)},
    optional={"why": st.text(max_size=5) | st.sampled_from(get_args(Envelope)).map(written)},
)


@ALL
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(arguments, min_size=1, max_size=3), st.booleans())
def test_calls_come_back_as_they_were_written(
    envelope: Envelope, given_: list[dict[str, Any]], has_response: bool
) -> None:
    tools = Tools(TOOLS, envelope, response=ANSWER if has_response else None)
    if ENVELOPES[envelope].separator is None:
        del given_[1:]
    calls = [ToolCall("pick", one, json.dumps(one, ensure_ascii=False)) for one in given_]
    text = written(envelope, *((call.name, call.text) for call in calls))
    assert parse_tool_calls(text, tools) == calls
    target = target_of(tools)
    assert target is not None and target.validate(text) == calls


@ALL
def test_free_text_before_calls_is_left_out_and_alone_it_is_the_answer(envelope: Envelope) -> None:
    tools = Tools(TOOLS, envelope)
    call = written(envelope, ("stop", "{}"))
    if not ENVELOPES[envelope].before_answer:
        assert parse_tool_calls(f"Let me see.\n{call}", tools) == [ToolCall("stop", {}, "{}")]
    assert parse_tool_calls(answer(envelope, "It is late."), tools) == "It is late."


@ALL
def test_an_answer_that_quotes_a_call_is_an_answer(envelope: Envelope) -> None:
    quoted = json.dumps({"ok": [], "said": written(envelope, ("stop", "{}"))}, ensure_ascii=False)
    nested = '{"ok": [], "call": {"name": "stop", "arguments": {}, "parameters": {}}}'
    for text in (quoted, nested):
        for choice in ("auto", "none"):
            tools = Tools(TOOLS, envelope, choice, response=ANSWER)
            assert parse_tool_calls(answer(envelope, text), tools) == text


@pytest.mark.parametrize("style", [{"separators": (",", ":")}, {"indent": 2}, {}])
@pytest.mark.parametrize("envelope", ["json", "llama3"])
def test_calls_that_share_their_form_with_the_answer_are_read_in_any_style(
    envelope: Envelope, style: dict[str, Any]
) -> None:
    key = ENVELOPES[envelope].arguments_key
    call = json.dumps({"name": "pick", key: {"ids": [1]}}, **style)
    text = (ENVELOPES[envelope].separator or "").join([call, call])
    calls = parse_tool_calls(text, Tools(TOOLS, envelope, response=ANSWER))
    assert [one.arguments for one in calls if isinstance(one, ToolCall)] == [{"ids": [1]}] * 2


@ALL
def test_arguments_that_break_their_schema_are_told_with_their_place(envelope: Envelope) -> None:
    target = target_of(Tools(TOOLS, envelope))
    assert target is not None
    text = written(envelope, ("pick", '{"ids": [1, 1]}'))
    with pytest.raises(OutputInvalid, match="not a valid call of a tool") as caught:
        target.validate(text)
    assert caught.value.errors[0].startswith("#/0/arguments/ids: ")
    assert caught.value.text == text


@ALL
def test_the_final_json_is_held_to_the_response(envelope: Envelope) -> None:
    target = target_of(Tools(TOOLS, envelope, response=ANSWER))
    assert target is not None
    assert target.validate(answer(envelope, '{"ok": [1, 2]}')) == '{"ok": [1, 2]}'
    with pytest.raises(OutputInvalid) as caught:
        target.validate(answer(envelope, '{"ok": [1, 1]}'))
    assert caught.value.errors[0].startswith("#/ok: ")


@pytest.mark.parametrize("options", [{}, {"choice": "required"}, {"response": ANSWER}], ids=str)
@pytest.mark.parametrize("envelope", [name for name in get_args(Envelope) if name != "harmony"])
def test_what_the_mask_of_tools_writes_is_read_and_wrong_only_where_the_mask_is_loose(
    envelope: Envelope, options: dict[str, Any]
) -> None:
    tools = Tools(TOOLS, envelope, **options)
    grammar = backend("bytes", "llguidance").compile(tools)
    target = target_of(tools)
    assert target is not None and not grammar.report.exact
    random_ = random.Random(envelope)
    texts = [walk(grammar.matcher(), random_) for _ in range(60)]
    num_calls = 0
    for text in filter(None, texts):
        try:
            said = target.validate(text)
        except OutputInvalid as error:
            assert all("non-unique" in violation for violation in error.errors)
        else:
            num_calls += not isinstance(said, str)
    assert num_calls or not options


def test_json_that_looks_like_a_call_may_still_be_a_right_answer() -> None:
    free = JsonSchema({"type": "object", "additionalProperties": True})
    text = '{"name": "pick", "arguments": {"ids": [1, 1]}}'
    target = target_of(Tools(TOOLS, "json", response=free))
    assert target is not None and target.validate(text) == text


PERSON = JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}})


@ALL
@pytest.mark.parametrize("response", [None, PERSON, ANSWER], ids=["text", "person", "answer"])
@pytest.mark.parametrize("choice", ["auto", "required", "stop"])
def test_a_call_of_no_tool_is_an_answer_or_told(
    envelope: Envelope, response: JsonSchema | None, choice: str
) -> None:
    tools = Tools(TOOLS, envelope, choice, response=response)
    target = target_of(tools)
    assert target is not None
    text = written(envelope, ("zzz", "{}"))
    is_object = ENVELOPES[envelope].arguments_key is not None
    if choice == "auto" and response is PERSON and is_object:
        assert target.validate(text) == target.read(text) == text
        return
    with pytest.raises(OutputInvalid) as caught:
        target.validate(text)
    if not (choice == "auto" and response is not None and is_object):  # else an answer, and wrong
        assert caught.value.errors == ("#/0/name: there is no tool 'zzz' to be called",)


@ALL
def test_only_the_tool_that_was_chosen_may_be_called(envelope: Envelope) -> None:
    target = target_of(Tools(TOOLS, envelope, "pick"))
    assert target is not None and target.validate(written(envelope, ("pick", '{"ids": []}')))
    with pytest.raises(OutputInvalid, match="no tool 'stop' to be called"):
        target.validate(written(envelope, ("stop", "{}")))


HUGE = {"digits": "1" * 4400, "depth": "[" * 20_000 + "]" * 20_000, "quoted": '["]",' * 5000}
HUGE["quoted"] += "1" + "]" * 5000


@pytest.mark.parametrize("name", HUGE)
def test_what_python_cannot_hold_is_told_with_its_place(name: str) -> None:
    huge = HUGE[name]
    anything = {"name": "put", "parameters": {"type": "object", "properties": {"it": {}}}}
    for envelope in get_args(Envelope):
        for response in (None, ANSWER):
            target = target_of(Tools([anything], envelope, response=response))
            assert target is not None
            text = written(envelope, ("put", f'{{"it": {huge}}}'))
            for read in (target.read, target.validate):
                with pytest.raises(OutputInvalid) as caught:
                    read(text)
                assert caught.value.errors[0].startswith("#/0/arguments: ")
                assert caught.value.text == text
    in_tag = target_of(tag({"type": "json_schema", "json_schema": {}}))
    assert in_tag is not None
    with pytest.raises(OutputInvalid):
        in_tag.validate(huge)


# structural tags


def tag(*elements: dict[str, Any]) -> StructuralTag:
    return StructuralTag({"format": {"type": "sequence", "elements": list(elements)}})


JSON = {"type": "json_schema", "json_schema": PICK}
IN_TAG = {"type": "tag", "begin": "<f>", "content": JSON, "end": "</f>"}
FREE = {"type": "triggered_tags", "triggers": ["<f"], "tags": [IN_TAG]}
EBNF = {"type": "grammar", "grammar": 'root ::= "a"'}


def test_every_json_of_a_tag_is_held_to_its_schema() -> None:
    target = target_of(tag(FREE))
    assert target is not None
    right, wrong = '<f>{"ids": [1, 2]}</f>', '<f>{"ids": [1, 1]}</f>'
    for text in (right, f"so {right} or {right}.", "no tag at all"):
        assert target.validate(text) == text
    with pytest.raises(OutputInvalid) as caught:
        target.validate(f"so {right} or {wrong}.")
    [error] = caught.value.errors
    assert error.startswith("#/format/elements/0/tags/0/content/json_schema: ")
    assert "#/ids: " in error


def test_a_tag_can_be_validated_unless_a_grammar_stands_in_it() -> None:
    assert can_validate(tag(FREE)) and not can_validate(tag(IN_TAG, EBNF))
    assert explain(tag(IN_TAG)).summary.endswith("validated and, where it fails, drawn again")
    assert explain(Tools(TOOLS)).summary.endswith("validated and, where it fails, drawn again")
    with pytest.raises(UnsupportedConstraint, match="cannot be validated"):
        check_report(explain(tag(IN_TAG, EBNF)).report, tag(IN_TAG, EBNF), "validate")


LOOSE_TAGS = {
    "tag": IN_TAG,
    "free": FREE,
    "first": {**FREE, "at_least_one": True},
    "separated": {"type": "tags_with_separator", "tags": [IN_TAG], "separator": "; "},
    "or": {"type": "or", "elements": [JSON, {"type": "regex", "pattern": "a+"}]},
    "plus": {"type": "plus", "content": IN_TAG},
}


@pytest.mark.parametrize("name", LOOSE_TAGS)
def test_what_the_mask_of_a_tag_writes_is_read_and_wrong_only_where_the_mask_is_loose(
    name: str,
) -> None:
    constraint = StructuralTag({"format": LOOSE_TAGS[name]})
    grammar = backend("bytes", "llguidance").compile(constraint)
    target = target_of(constraint)
    assert target is not None and not grammar.report.exact
    random_ = random.Random(name)
    texts = [*filter(None, (walk(grammar.matcher(), random_) for _ in range(60)))]
    assert texts
    for text in texts:
        try:
            assert target.validate(text) == text
        except OutputInvalid as error:
            assert all("non-unique" in violation for violation in error.errors)


FREE_KEYS = {"type": "object", "additionalProperties": {"type": "integer"}}
COUNTED = {**FREE_KEYS, "minProperties": 2}
FIXED_KEYS = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("schema", [FREE_KEYS, COUNTED, FIXED_KEYS], ids=["free", "counted", "no"])
def test_keys_that_may_come_twice_are_told_where_finished_text_is_refused_for_them(
    schema: dict[str, Any],
) -> None:
    in_tag = tag({"type": "json_schema", "json_schema": schema})
    repeated, lark = (
        '{"a": 1, "a": 2}',
        {"type": "grammar", "grammar": 'start: "a"', "syntax": "lark"},
    )
    tools = Tools([{"name": "put", "parameters": schema}], choice="required")
    for constraint in (in_tag, tools):
        text = repeated if constraint is in_tag else written("hermes", ("put", repeated))
        grammar, target = backend("bytes", "llguidance").compile(constraint), target_of(constraint)
        takes = all(map(grammar.matcher().accept, text.encode()))
        assert takes is not grammar.report.exact is (schema is FIXED_KEYS)
        assert target is not None
        with pytest.raises(OutputInvalid, match="appears twice"):
            target.validate(text)
        if not grammar.report.exact:
            with pytest.raises(UnsupportedConstraint, match="may come twice"):
                check_report(grammar.report, constraint, "error")
    # beside a grammar nothing is validated, and of two values the last one is meant
    unchecked = explain(tag({"type": "json_schema", "json_schema": schema}, lark)).report
    assert unchecked.exact is (schema is not COUNTED)


def test_a_wrong_tag_is_told_by_who_compiles_it() -> None:
    wrong = StructuralTag({"format": {"type": "smoke"}})
    assert not can_validate(wrong)
    with pytest.raises(GrammarError):
        explain(wrong)


A, B = JsonSchema('{"const": "a"}'), JsonSchema('{"type": "integer"}')
FORMS = {
    "text": (Text("ab"), ["ab"], ["a", "abc", ""]),
    "number": (sequence(Json(B), Text("2")), ["12", "122"], ["2", "13"]),
    "either": (either(Text("a"), Text("ab")), ["a", "ab"], ["b"]),
    "row": (sequence(either(Text("a"), Text("ab")), Text("bc")), ["abc", "abbc"], ["ac"]),
    "repeat": (Repeat(Text("ab"), 1, 2), ["ab", "abab"], ["", "ababab"]),
    "star": (Repeat(either(Text("a"), Text(""))), ["", "aaa"], ["b"]),
    "pattern": (sequence(Pattern("a+"), Text("ab")), ["aab", "aaaab"], ["ab", "aa"]),
    "any": (sequence(AnyText(("<",)), Text("<"), Json(A)), ['x<"a"', '<"a"'], ['<<"a"', 'x<"b"']),
    "short": (sequence(AnyText((), 2), Text("!")), ["!", "a!!", "ab!"], ["abc!", "ab"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_text_is_read_by_a_form_in_every_way_there_is(name: str) -> None:
    form, right, wrong = FORMS[name]

    def is_right(part: Json, text: str) -> bool:
        return text.isdigit() if part.constraint is B else text == '"a"'

    assert all(reads(form, text, is_right) for text in right)
    assert not any(reads(form, text, is_right) for text in wrong)


parts = st.sampled_from([Text("a"), Text("ab"), Pattern("a+b?"), Pattern("b*"), Text("")])
free = st.builds(AnyText, st.sampled_from([(), ("b",), ("ab", "ca")]), st.none() | st.just(2))
several = st.lists(st.deferred(lambda: forms), min_size=1, max_size=3)
forms: st.SearchStrategy[Form] = st.one_of(
    parts,
    free,
    several.map(lambda parts: Sequence(tuple(parts))),
    several.map(lambda parts: Either(tuple(parts))),
    st.builds(Repeat, st.deferred(lambda: forms), st.integers(0, 2), st.sampled_from([None, 2])),
)


def is_of(form: Form, text: str) -> bool:
    """Whether a text is of a form, by trying every way to cut it."""
    match form:
        case Text(fixed):
            return text == fixed
        case Pattern(pattern):
            return re.fullmatch(pattern, text) is not None
        case AnyText(excludes, most):
            return len(text) <= (most or 99) and not any(part in text for part in excludes)
        case Either(parts):
            return any(is_of(part, text) for part in parts)
        case Sequence(()):
            return text == ""
        case Sequence((first, *others)):
            cuts = range(len(text) + 1)
            rest = Sequence(tuple(others))
            return any(is_of(first, text[:cut]) and is_of(rest, text[cut:]) for cut in cuts)
        case Repeat(part, least, most):  # what is empty may be left out, down to the minimum
            counts = range(least, (max(least, len(text)) if most is None else most) + 1)
            return any(is_of(Sequence((part,) * count), text) for count in counts)
    raise AssertionError(form)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(forms, st.text("abc", max_size=4))
def test_a_text_is_read_as_trying_every_cut_of_it_would(form: Form, text: str) -> None:
    assert reads(form, text, lambda *_: True) is is_of(form, text)


def test_a_text_that_may_be_cut_in_many_ways_is_read_about_as_quickly_as_any() -> None:
    digits = Pattern("[0-9,]+")
    items = sequence(digits, Repeat(sequence(Text(","), digits)))
    rows = sequence(*(sequence(AnyText(), Text("x")) for _ in range(4)), Text("y"))
    assert reads(items, "1," * 20_000 + "1", lambda *_: True)
    assert not reads(rows, "x" * 40_000, lambda *_: True)


# as a request


def test_tools_and_tags_are_grammars_of_a_request() -> None:
    tools = Tools(TOOLS)
    task = resolve_options({"grammar": tools})
    assert task.constraint is tools and task.target is not None
    assert task.target.json_schema == {}  # nothing is said of it in the prompt
    assert resolve_options({"grammar": tag(IN_TAG, EBNF)}).target is None
    with pytest.raises(InvalidRequest, match="grammar must be"):
        resolve_options({"grammar": [tools]})  # type: ignore[typeddict-item]


def test_the_real_model_calls_a_tool_and_its_arguments_are_validated(llm: LLM) -> None:
    ids = {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}}
    parameters = {
        "type": "object",
        "properties": {"ids": {**ids, "uniqueItems": True, "maxItems": 2}},
        "required": ["ids"],
    }
    tools = Tools([{"name": "pick", "parameters": parameters}], choice="pick")
    result = llm.generate_raw("Pick two numbers.", grammar=tools)
    [call] = result.value
    assert isinstance(call, ToolCall) and call.name == "pick"
    assert len(set(call.arguments["ids"])) == len(call.arguments["ids"]) <= 2
    assert parse_tool_calls(result.text, tools) == [call]


def test_calls_in_special_tokens_are_read_from_what_was_written() -> None:
    names = {"[TOOL_CALLS]": 257, "</s>": 258}
    tokens = (*(bytes([i]) for i in range(256)), None, None, None)
    vocabulary = Vocabulary(tokens, (258,), lambda text: list(text.encode()), names)
    tools = Tools(TOOLS, "mistral", "required")
    compiled: Future[Any] = Future()
    compiled.set_result(LLGuidanceBackend(vocabulary).compile(tools))
    request = Request(0, [1], SamplingParams(), 100, compiled)
    plain = written("mistral", ("stop", "{}")).removeprefix("[TOOL_CALLS]")
    request.token_ids += [257, *plain.encode(), 258]
    request.text.append(plain.encode())
    request.status, request.finish_reason = RequestStatus.FINISHED, "stop"
    task = resolve_options({"grammar": tools})
    generation = to_generation(request, task, vocabulary)
    assert generation.text == plain
    assert generation.value == [ToolCall("stop", {}, "{}")]
