"""Logprobs of other servers: asked for in their words, read in their forms, missed when not told.

The forms are those of OpenAI's reference, and of vLLM, SGLang and llama.cpp's server.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from structspec import (
    HookEvent,
    InvalidRequest,
    OutputInvalid,
    ServerError,
    TokenDetail,
    TokenLogprob,
    Tools,
    Truncated,
)
from structspec.chat.logprobs import to_entry
from structspec.client.told_tokens import ToldTokens, token_fields
from tests.client.fakes import PAGES, Connect, Fake, Lines, completion

KINDS = [*PAGES, "openai"]
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def entry(token: str, logprob: float, *top: tuple[str, float], **more: Any) -> dict[str, Any]:
    """One of `logprobs.content` in OpenAI's form."""
    others = [{"token": text, "bytes": [*text.encode()], "logprob": of} for text, of in top]
    own = {"token": token, "bytes": [*token.encode()], "logprob": logprob}
    return {**own, "top_logprobs": others, **more}


def whole(entries: Any, text: str | None = "hi", **more: Any) -> tuple[int, dict[str, Any]]:
    """An answer with something as its logprobs."""
    body = completion({"content": text, **more})
    body["choices"][0]["logprobs"] = entries
    return 200, body


def pieces(*deltas: tuple[str, Any], end: str = "stop") -> Lines:
    """A stream of texts, each with something as its logprobs."""
    choices = [{"delta": {"content": text}, "logprobs": logprobs} for text, logprobs in deltas]
    chunks = [{"choices": [one]} for one in [*choices, {"delta": {}, "finish_reason": end}]]
    lines = [*chunks, {"choices": [], "usage": USAGE}]
    return Lines("".join(f"data: {json.dumps(one)}\n\n" for one in lines) + "data: [DONE]\n\n")


H = entry("h", -0.5, ("h", -0.5), ("H", -1.0))
I = entry("i", -2.0, ("o", -0.25), ("i", -2.0))  # noqa: E741
TOLD = (
    TokenLogprob(None, -0.5, ((None, -0.5), (None, -1.0)), "h", b"h", ("h", "H"), (b"h", b"H")),
    TokenLogprob(None, -2.0, ((None, -0.25), (None, -2.0)), "i", b"i", ("o", "i"), (b"o", b"i")),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_server_is_asked_in_chats_own_fields(kind: str, connect: Connect) -> None:
    fake = Fake(kind, whole({"content": [H, I]}))
    assert connect(fake).generate_raw("?", logprobs=2).logprobs == TOLD
    assert (fake.body["logprobs"], fake.body["top_logprobs"]) == (True, 2)
    plain = Fake(kind)
    assert connect(plain).generate_raw("?").logprobs is None
    assert "logprobs" not in plain.body


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_told_of_piece_by_piece(kind: str, connect: Connect) -> None:
    ended: list[HookEvent] = []
    told = [("h", {"content": [H]}), ("", None), ("i", {"content": [I], "refusal": None})]
    fake = Fake(kind, pieces(*told))
    hooks = {"step": lambda event: None, "done": ended.append}
    assert connect(fake, hooks=hooks).generate("?", logprobs=2) == "hi"
    assert ended[0].result.logprobs == TOLD  # type: ignore[union-attr]


def test_no_alternatives_are_asked_for_so_that_each_server_sends_none(connect: Connect) -> None:
    for kind in KINDS:
        fake = Fake(kind, whole({"content": [H, I]}))
        told = connect(fake).generate_raw("?", logprobs=0).logprobs
        assert [one.top for one in told] == [(), ()]
        # without the field llama.cpp tells 20, and with 0 nothing at all
        assert fake.body.get("top_logprobs") == (1 if kind == "llama.cpp" else None)


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs", "token_details"])
def test_more_alternatives_than_anybody_tells_are_refused_before_asking(
    name: str, connect: Connect
) -> None:
    fake = Fake("openai")
    with pytest.raises(InvalidRequest, match=f"{name} must be between 0 and 20"):
        connect(fake).generate_raw("?", **{name: 21})
    assert not fake.bodies


TAKEN_BY = {
    "logprobs_mode": {"structspec"},
    "token_details": {"structspec"},
    "prompt_logprobs": {"structspec", "vllm"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TAKEN_BY)
def test_what_a_kind_of_server_lacks_is_refused_with_its_name(
    kind: str, name: str, connect: Connect
) -> None:
    status, body = whole({"content": [H, I]})
    body["prompt_logprobs"] = [None]
    body["choices"][0]["structspec"] = {"tokens": []}
    fake = Fake(kind, (status, body))
    options = {"logprobs": 1, "logprobs_mode": "raw"} if "mode" in name else {name: 1}
    if kind in TAKEN_BY[name]:
        try:
            connect(fake).generate_raw("?", **options)
        except ServerError as error:
            assert name == "token_details" and "no token_details" in str(error)
        assert fake.body[name] == options[name]
    else:
        with pytest.raises(InvalidRequest) as caught:
            connect(fake).generate_raw("?", **options)
        assert f"{name}=" in str(caught.value) and f"({kind})" in str(caught.value)
        assert "leave it out" in str(caught.value) and not fake.bodies


@pytest.mark.parametrize(
    "told", [None, {}, {"content": None}, {"content": []}, {"tokens": ["hi"]}], ids=str
)
def test_a_server_that_tells_none_is_no_silent_lack(told: Any, connect: Connect) -> None:
    for fake in (Fake("other", whole(told)), Fake("other", pieces(("hi", told)))):
        is_stream = isinstance(fake.says[0], Lines)
        call = getattr(connect(fake), "stream" if is_stream else "generate_raw")
        with pytest.raises(ServerError, match="tells no logprobs.*leave logprobs= out") as caught:
            call("?", logprobs=1)
        assert caught.value.text == "hi" and caught.value.usage is not None
        assert caught.value.usage.completion_tokens == 3
        assert len(fake.bodies) == 1  # nor is it asked again: it would be silent again


def test_what_else_is_wrong_with_an_answer_is_told_first(connect: Connect) -> None:
    refused = whole(None, None, refusal="no")
    with pytest.raises(OutputInvalid, match="refused to answer: no"):
        connect(Fake("openai", refused)).generate_raw("?", logprobs=1)
    with pytest.raises(Truncated):
        cut = whole(None, '{"a', finish_reason="length")
        connect(Fake("vllm", cut)).generate_raw("?", schema=dict, logprobs=1)
    with pytest.raises(OutputInvalid):
        connect(Fake("vllm", whole(None, "x"))).generate_raw("?", schema=int, logprobs=1)


def test_an_answer_without_text_has_none(connect: Connect) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tools = Tools([{"type": "function", "function": {"name": "f"}}], choice="required")
    for told in (None, {"content": None}, {"content": []}):
        called = Fake("openai", whole(told, None, tool_calls=[call], finish_reason="tool_calls"))
        generation = connect(called).generate_raw("?", grammar=tools, logprobs=1)
        assert generation.value[0].name == "f" and generation.logprobs == ()
        assert connect(Fake("openai", whole(told, ""))).generate_raw("?", logprobs=1).text == ""


def test_a_server_may_tell_of_fewer_tokens_and_of_what_ends_them(connect: Connect) -> None:
    fewer = {"content": [I]}  # llama.cpp is silent about tokens that begin a character
    assert connect(Fake("llama.cpp", whole(fewer))).generate_raw("?", logprobs=2).logprobs == (
        TOLD[1],
    )
    end = entry("<|im_end|>", -0.1)  # vLLM tells of the stop token
    [*_, last] = (
        connect(Fake("vllm", whole({"content": [H, I, end]})))
        .generate_raw("?", logprobs=2)
        .logprobs
    )
    assert last.text == "<|im_end|>" and last.top == ()


def test_ids_are_told_where_the_server_tells_them(connect: Connect) -> None:
    named = {"id": 5, "top_logprobs": [{"id": 6, "token": "H", "bytes": [72], "logprob": -0.25}]}
    fake = Fake("llama.cpp", whole({"content": [{**H, **named}]}))
    [one] = connect(fake).generate_raw("?", logprobs=1).logprobs
    assert one.token_id == 5 and one.top == ((6, -0.25),)


def test_half_a_character_has_its_bytes_and_no_bytes_are_none(connect: Connect) -> None:
    first = {"token": "\\xc3", "bytes": [0xC3], "logprob": -1.0, "top_logprobs": []}
    second = {"token": "", "bytes": [0xA9], "logprob": -1.0}
    special = {"token": "<x>", "bytes": None, "logprob": -1.0, "top_logprobs": None}
    fake = Fake("openai", whole({"content": [first, second, special]}, "é"))
    told = connect(fake).generate_raw("?", logprobs=0).logprobs
    assert [one.data for one in told] == [b"\xc3", b"\xa9", None]
    assert [one.text for one in told] == ["\\xc3", "", "<x>"]


def test_the_likeliest_come_first_whatever_the_server_begins_with(connect: Connect) -> None:
    chosen = entry("c", -3.0, ("c", -3.0), ("a", -0.5), ("b", -1.0))  # as vLLM has it
    fake = Fake("vllm", whole({"content": [chosen]}, "c"))
    [one] = connect(fake).generate_raw("?", logprobs=3).logprobs
    assert one.top_texts == ("a", "b", "c")


BROKEN: dict[str, Any] = {
    "no number": {**H, "logprob": None},
    "a number in words": {**H, "logprob": "-1"},
    "yes": {**H, "logprob": True},
    "no bytes": {**H, "bytes": [256]},
    "bytes in words": {**H, "bytes": "h"},
    "a count of bytes": {**H, "bytes": 1},
    "no token": {"logprob": -1.0},
    "a token that is none": {**H, "token": 3},
    "alternatives that are none": {**H, "top_logprobs": {"h": -1.0}},
    "an alternative that is none": {**H, "top_logprobs": [None]},
    "nothing": None,
    "a text": "h",
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_entry_that_cannot_be_read_is_an_error_where_it_was_asked_for(
    what: str, connect: Connect
) -> None:
    told = {"content": [BROKEN[what]]}
    for answer in (whole(told), pieces(("hi", told))):
        call = "generate_raw" if isinstance(answer, tuple) else "stream"
        with pytest.raises(ServerError, match="logprobs cannot be read"):
            getattr(connect(Fake("vllm", answer)), call)("?", logprobs=1)
    assert connect(Fake("vllm", whole(told))).generate("?") == "hi"  # nobody looks
    assert connect(Fake("vllm", whole("yes"))).generate("?") == "hi"


def test_not_a_number_is_no_logprob(connect: Connect) -> None:
    nan = pieces(("hi", {"content": [{**H, "logprob": float("nan")}]}))
    with pytest.raises(ServerError, match="nan is no logprob"):
        connect(Fake("other", nan)).stream("?", logprobs=0)


PROMPT = [
    None,
    {"5": {"logprob": -4.0, "rank": 9, "decoded_token": "x"}},
    {
        "7": {"logprob": -1.0, "rank": 2, "decoded_token": "b"},
        "8": {"logprob": -0.5, "rank": 1, "decoded_token": None},
    },
]


def test_a_prompts_logprobs_are_read_as_vllm_writes_them(connect: Connect) -> None:
    status, body = completion_with(PROMPT)
    fake = Fake("vllm", (status, body))
    told = connect(fake).generate_raw("?", prompt_logprobs=2).prompt_logprobs
    assert fake.body["prompt_logprobs"] == 2
    assert told == (
        TokenLogprob(5, -4.0, (), "x"),
        TokenLogprob(7, -1.0, ((8, -0.5), (7, -1.0)), "b", None, (None, "b"), (None, None)),
    )


def completion_with(prompt: Any) -> tuple[int, dict[str, Any]]:
    return 200, {**completion("hi"), "prompt_logprobs": prompt}


def test_a_prompt_of_one_token_has_none_and_silence_is_an_error(connect: Connect) -> None:
    one = connect(Fake("vllm", completion_with([None]))).generate_raw("?", prompt_logprobs=1)
    assert one.prompt_logprobs == ()
    with pytest.raises(ServerError, match="tells no prompt_logprobs"):
        connect(Fake("vllm")).generate_raw("?", prompt_logprobs=1)
    for broken in ([None, {}], [None, {"x": {}}], [None, [1]], 3, {"7": 1}):
        with pytest.raises(ServerError, match="prompt_logprobs cannot be read"):
            connect(Fake("vllm", completion_with(broken))).generate_raw("?", prompt_logprobs=1)


def test_vllm_tells_nothing_of_a_prompt_in_a_stream(connect: Connect) -> None:
    fake = Fake("vllm", completion_with(PROMPT))
    with pytest.raises(InvalidRequest, match="stream from this server .vllm.: use generate_raw"):
        connect(fake).stream("?", prompt_logprobs=1)
    hooks = {"step": lambda event: None}  # who listens for text hears none then
    told = connect(fake, hooks=hooks).generate_raw("?", prompt_logprobs=1).prompt_logprobs
    assert len(told) == 2 and "stream" not in fake.body


def test_details_that_cannot_be_read_are_an_error(connect: Connect) -> None:
    good = {**H, "id": 1, "origin": "sampled", "drafter": None, "masked_logprob": 0, "top": []}
    bad = {"an origin": {**good, "origin": "x"}, "no id": {**good, "id": None}, "nothing": None}
    for told in bad.values():
        with pytest.raises(ServerError, match="token_details cannot be read"):
            details({"tokens": [told]}, connect)
    [one] = details({"tokens": [good]}, connect)
    assert one == TokenDetail(1, "sampled", None, -0.5, 0.0, text="h", data=b"h")


def details(told: Any, connect: Connect) -> Any:
    status, body = whole(None)
    body["choices"][0]["structspec"] = told
    return (
        connect(Fake("structspec", (status, body))).generate_raw("?", token_details=0).token_details
    )


def test_another_attempt_tells_of_its_own_tokens(connect: Connect) -> None:
    fake = Fake("vllm", whole({"content": [H]}, "h"), whole({"content": [I]}, "7"))
    generation = connect(fake).generate_raw("?", schema=int, logprobs=2)
    assert generation.value == 7 and generation.logprobs == TOLD[1:]


NUMBERS = st.floats(-9999, 0)
TOKENS = st.tuples(
    st.none() | st.integers(0, 9), NUMBERS, st.text(max_size=2), st.none() | st.binary(max_size=2)
)


@given(st.lists(st.tuples(TOKENS, st.lists(TOKENS, max_size=3))))
def test_what_is_written_in_openais_form_is_read_as_it_was(told: list[Any]) -> None:
    entries = []
    for (token_id, logprob, text, data), top in told:
        best = sorted(top, key=lambda one: -one[1])
        pairs = tuple((one[0], one[1]) for one in best)
        texts, spellings = tuple(one[2] for one in best), tuple(one[3] for one in best)
        entries.append(TokenLogprob(token_id, logprob, pairs, text, data, texts, spellings))
    sent = json.loads(json.dumps([to_entry(one) for one in entries]))
    tokens = ToldTokens([{"content": sent[:2]}, {"content": None}, {"content": sent[2:]}])
    fields = token_fields(tokens, {"logprobs": 3}, has_text=False)
    assert fields == {"logprobs": tuple(entries)}


ODD = st.none() | st.booleans() | st.floats() | st.sampled_from([7, 300, 10**400, "h", [], {}])
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        **{"token": st.just("h") | ODD, "decoded_token": ODD, "rank": ODD, "id": st.just(1) | ODD},
        **{"logprob": st.just(-1.0) | ODD, "masked_logprob": st.just(0) | ODD, "drafter": ODD},
        **{"bytes": st.lists(ODD, max_size=1) | ODD, "origin": st.just("sampled") | ODD},
        **{"top_logprobs": st.just([{"token": "h", "logprob": -1}]) | ODD, "top": ODD},
    },
)
PIECES = st.one_of(
    ODD,
    st.builds(lambda entry: {"content": [entry], "tokens": [entry]}, ENTRIES | ODD),
    st.builds(lambda key, entry: [None, {key: entry}], st.sampled_from(["1", "x"]), ENTRIES | ODD),
)


@settings(max_examples=600, deadline=None)
@example({"content": [{"token": "h", "logprob": 10**400}]}, "logprobs")  # no float
@given(PIECES, st.sampled_from(["logprobs", "token_details", "prompt_logprobs"]))
def test_whatever_a_server_says_is_read_or_an_error_with_a_type(said: Any, name: str) -> None:
    tokens = ToldTokens([said], [said], [said])
    with contextlib.suppress(ServerError):
        told = token_fields(tokens, {name: 1}, has_text=True)[name]
        assert all(isinstance(one, TokenLogprob | TokenDetail) for one in told)
