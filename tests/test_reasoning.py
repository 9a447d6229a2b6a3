"""Which markers a model has, where its prompt stands, and what becomes of its text."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec import InvalidRequest, Reasoning, Regex, Truncated, Vocabulary
from structspec.generation import to_generation
from structspec.grammars.base import Matcher
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.grammars.wrapping import Wrapper
from structspec.options import resolve_options
from structspec.reasoning_boundary import BEFORE, ENDED, REASONING, Boundary, State
from structspec.reasoning_markers import HARMONY, KNOWN, find_markers, find_state
from structspec.reasoning_plan import Reasoner
from structspec.reasoning_progress import ReasoningProgress
from structspec.request import Request, RequestStatus, SamplingParams
from structspec.vocabulary import greedy_encoder
from tests.reasoning_toy import VOCABULARY as TOY
from tests.reasoning_toy import spell

BYTES = tuple(bytes([i]) for i in range(256))
TEMPLATE = "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}...</think>"


def vocabulary(*special: str, texts: Sequence[str] = ()) -> Vocabulary:
    """Bytes, texts that are one token, a stop token, and special tokens."""
    tokens = (*BYTES, *(text.encode() for text in texts))
    ids = {name: len(tokens) + 1 + i for i, name in enumerate(special)}
    all_tokens = (*tokens, None, *(None for _ in special))
    return Vocabulary(all_tokens, (len(tokens),), greedy_encoder(tokens), ids)


def encode(text: str, known: Vocabulary) -> list[int]:
    """As a tokenizer parses a rendered template: special tokens where their names stand."""
    for name, token_id in known.special_tokens.items():
        head, found, tail = text.partition(name)
        if found:
            return [*encode(head, known), token_id, *encode(tail, known)]
    return known.encode_text(text)


THINK = vocabulary(texts=("<think>", "</think>", "\n\n", "\n"))
GPT_OSS = vocabulary("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>")


@pytest.mark.parametrize("markers", KNOWN, ids=lambda markers: markers.start)
def test_markers_that_are_tokens_are_found_special_or_not(markers):
    assert find_markers(vocabulary(markers.start, markers.end), None) == markers
    assert find_markers(vocabulary(texts=(markers.start, markers.end)), None) == markers
    assert find_markers(vocabulary(markers.start), None) is None


@pytest.mark.parametrize("markers", KNOWN, ids=lambda markers: markers.start)
def test_markers_of_many_tokens_are_found_in_the_chat_template(markers):
    template = f"… {markers.start} … {markers.end} …"
    assert find_markers(vocabulary(), template) == markers
    assert find_markers(vocabulary(), "{{ messages }}") is None


def test_tokens_come_before_what_a_template_mentions():
    known = vocabulary("[THINK]", "[/THINK]")
    assert find_markers(known, TEMPLATE).start == "[THINK]"


@pytest.mark.parametrize(
    ("prompt", "state"),
    [
        ("<|im_start|>assistant\n<think>\n", State(REASONING)),  # DeepSeek R1, QwQ
        ("<|im_start|>assistant\n<think>", State(REASONING)),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ENDED),  # Qwen 3 without thinking
        ("<|im_start|>assistant\n</think>", ENDED),  # DeepSeek V3.1
        ("<|im_start|>assistant\n", State(BEFORE)),  # Qwen 3
        ("What does <think> mean?<|im_end|>\n<|im_start|>assistant\n", State(BEFORE)),
        ("<think>old</think>Hi<|im_end|>\n<|im_start|>assistant\n", State(BEFORE)),
        ("<think>cut off<|im_end|>\n<|im_start|>assistant\n", State(BEFORE)),
        ("", State(BEFORE)),
        ("\n \n", State(BEFORE)),
    ],
)
@pytest.mark.parametrize("known", [THINK, vocabulary()], ids=["one token", "many tokens"])
def test_a_prompt_opens_reasoning_or_closes_it_at_its_very_end_alone(prompt, state, known):
    boundary = Boundary(known, "<think>", "</think>")
    assert find_state(boundary, encode(prompt, known)) == state


def test_a_special_token_that_somebody_spelled_in_a_prompt_opens_nothing():
    known = vocabulary("<think>", "</think>")
    boundary = Boundary(known, "<think>", "</think>")
    assert find_state(boundary, encode("Hi<think>", known)) == State(REASONING)
    assert find_state(boundary, known.encode_text("Hi<think>")) == State(BEFORE)


def test_without_a_start_marker_a_model_reasons_from_its_first_token():
    boundary = Boundary(THINK, "", "</think>")
    assert find_state(boundary, [65]) == State(REASONING)
    assert find_state(boundary, encode("</think>\n", THINK)) == ENDED


def progress_of(boundary: Boundary, initial: State, token_ids: Sequence[int]) -> tuple[str, str]:
    progress, answer = ReasoningProgress(boundary, initial), b""
    for token_id in token_ids:
        data = boundary._vocabulary.token_bytes[token_id] or b""
        answer += progress.take(token_id, data)
    answer += progress.finish()
    return progress.text.text, answer.decode()


@given(
    reasoning=st.text("ab<t/", max_size=8),
    answer=st.text("abc<t>/", max_size=8),
    cuts=st.sets(st.integers(0, 30)),
)
def test_free_text_is_told_apart_however_tokens_cut_it(reasoning, answer, cuts):
    """The end of reasoning may stand inside a token, where nothing masks it."""
    whole = f"<t>{reasoning}</t>{answer}"
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b].encode() for a, b in zip(edges, edges[1:], strict=False)]
    known = Vocabulary((*BYTES, *pieces, None), (256 + len(pieces),), greedy_encoder(BYTES))
    boundary = Boundary(known, "<t>", "</t>")
    written = range(256, 256 + len(pieces))
    assert progress_of(boundary, State(BEFORE), written) == (reasoning, answer)


@pytest.mark.parametrize("text", ["<", "<t", "a<t>b</t>", "ab"])
def test_text_that_does_not_begin_with_the_start_marker_is_all_answer(text):
    assert progress_of(Boundary(TOY, "<t>", "</t>"), State(BEFORE), spell(text)) == ("", text)


def test_one_token_of_line_breaks_belongs_to_neither_text():
    known = THINK
    for behind, answer in (
        ("\n\nHi", "Hi"),
        ("\nHi", "Hi"),
        ("Hi", "Hi"),
        ("\n\n\n\nHi", "\n\nHi"),
    ):
        boundary = Boundary(known, "<think>", "</think>", line_breaks=2)
        token_ids = encode(f"a</think>{behind}", known)
        assert progress_of(boundary, State(REASONING), token_ids) == ("a", answer)


def test_line_breaks_behind_the_end_marker_are_not_shown_to_the_grammar():
    """Models are trained to write two behind `</think>`; the answer's grammar knows of none."""
    plan = Reasoner(THINK, None).plan(None, encode("<think>", THINK), 50, is_constrained=True)
    matcher = wrap(LLGuidanceBackend(THINK).compile(Regex("[{]a[}]")).matcher(), plan.wrappers)
    assert all(map(matcher.accept, encode("Hm.</think>\n\n{a}", THINK)))
    assert matcher.accept(THINK.stop_token_ids[0])


def wrap(matcher: Matcher, wrappers: Sequence[Wrapper]) -> Matcher:
    for wrapper in wrappers:
        matcher = wrapper.around(matcher)
    return matcher


def plan(wish: Reasoning | None = None, prompt: str = "Hi", known: Vocabulary = THINK, **more):
    more = {"is_constrained": True, **more}
    return Reasoner(known, None).plan(wish, encode(prompt, known), 100, **more)


def test_a_model_without_markers_has_nothing_around_its_matchers():
    assert plan(known=vocabulary()) == ((), None)
    assert plan(Reasoning(mode="off"), known=vocabulary()) == ((), None)


@pytest.mark.parametrize("wish", [Reasoning(mode="on"), Reasoning(max_tokens=5)])
def test_reasoning_of_a_model_without_markers_is_refused_and_what_to_pass_is_said(wish):
    with pytest.raises(InvalidRequest, match=r"pass reasoning=Reasoning\(start=…, end=…\)"):
        plan(wish, known=vocabulary())
    own = Reasoning(mode=wish.mode, max_tokens=wish.max_tokens, start="<a>", end="</a>")
    assert plan(own, known=vocabulary()).progress is not None


def test_a_prompt_whose_reasoning_is_closed_leaves_the_grammar_as_it_is():
    assert plan(prompt="<think>\n\n</think>\n\n") == ((), None)


def test_free_text_is_told_apart_without_a_mask_unless_a_bound_was_asked_for():
    assert plan(is_constrained=False).wrappers == ()
    assert plan(is_constrained=False).progress is not None
    for wish in (Reasoning(mode="on"), Reasoning(max_tokens=3), Reasoning(mode="off")):
        assert len(plan(wish, is_constrained=False).wrappers) == 1


def forced(wish: Reasoning | None, prompt: str) -> bytes:
    made = plan(wish, prompt)
    compiled = LLGuidanceBackend(THINK).compile(Regex("answer"))
    return THINK.decode_bytes(wrap(compiled.matcher(), made.wrappers).forced_tokens(30))


def test_what_mode_forces():
    assert forced(None, "Hi") == b""
    assert forced(Reasoning(mode="on"), "Hi") == b"<think>"
    assert forced(Reasoning(mode="on"), "<think>") == b""
    assert forced(Reasoning(mode="on"), "<think></think>") == b"<think>"
    assert forced(Reasoning(mode="off"), "Hi") == b"answer"
    assert forced(Reasoning(mode="off"), "<think>") == b"</think>"  # then line breaks, or not
    assert forced(Reasoning(mode="off", line_breaks=0), "<think>") == b"</think>answer"


def test_templates_are_told_only_what_was_asked_for():
    reasoner = Reasoner(THINK, None)
    assert reasoner.template_options(None) == reasoner.template_options(Reasoning()) == {}
    assert reasoner.template_options(Reasoning("on")) == {"enable_thinking": True, "thinking": True}
    assert set(reasoner.template_options(Reasoning("off")).values()) == {False}


PROMPT_OF_HARMONY = "<|start|>assistant"


def harmony(wish: Reasoning | None = None, **more):
    made = plan(wish, PROMPT_OF_HARMONY, GPT_OSS, **more)
    matcher = LLGuidanceBackend(GPT_OSS).compile(Regex("[{]a[}]")).matcher()
    return wrap(matcher, made.wrappers), made.progress


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("<|channel|>final<|message|>{a}", ""),
        (
            "<|channel|>analysis<|message|>Hm, {x}<|end|><|start|>assistant"
            "<|channel|>final<|message|>{a}",
            "Hm, {x}",
        ),
    ],
)
def test_a_constrained_answer_of_gpt_oss_is_on_its_final_channel(text, reasoning):
    assert find_markers(GPT_OSS, None) == HARMONY
    matcher, progress = harmony()
    answer = b""
    token_ids = encode(text, GPT_OSS)
    for token_id in token_ids:
        assert matcher.accept(token_id)
        answer += progress.take(token_id, GPT_OSS.token_bytes[token_id] or b"")
    assert matcher.accept(GPT_OSS.stop_token_ids[0])
    assert (progress.text.text, answer) == (reasoning, b"{a}")
    assert token_ids[progress.num_before :] == encode("{a}", GPT_OSS)
    assert bool(progress.num_tokens) == bool(reasoning)
    matcher.rollback(1 + len(token_ids))
    assert matcher.accept(token_ids[0]) and not matcher.accept(ord("{"))


def test_without_reasoning_gpt_oss_writes_its_final_channel_for_certain():
    matcher, progress = harmony(Reasoning(mode="off"))
    start = encode("<|channel|>final<|message|>", GPT_OSS)
    assert matcher.forced_tokens(99) == [*start, *encode("{a}", GPT_OSS)]
    assert matcher.forced_tokens(2) == start[:2]


def test_a_constraint_that_writes_channels_itself_is_left_to_do_so():
    tools = plan(None, PROMPT_OF_HARMONY, GPT_OSS, marks_answers=True)
    channel = Regex("x") if not tools.wrappers else tools.wrappers[0].boundary.answer
    assert channel == ()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, None),
        ({"reasoning": True}, Reasoning("on")),
        ({"reasoning": False}, Reasoning("off")),
        ({"max_reasoning_tokens": 7}, Reasoning(max_tokens=7)),
        ({"reasoning": True, "max_reasoning_tokens": 0}, Reasoning("on", max_tokens=0)),
        ({"reasoning": {"start": "<a>", "end": "</a>"}}, Reasoning(start="<a>", end="</a>")),
        ({"reasoning": Reasoning("on", max_tokens=3), "max_reasoning_tokens": 3},
         Reasoning("on", max_tokens=3)),
    ],
)  # fmt: skip
def test_options_say_what_is_wanted(options, wanted):
    assert resolve_options(options).reasoning == wanted


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reasoning": "on"}, "reasoning must be bool or Reasoning or Mapping, not 'on'"),
        ({"reasoning": {"mode": "maybe"}}, 'mode must be "auto", "on" or "off", not \'maybe\''),
        ({"reasoning": {"budget": 3}}, "unknown field 'budget'; known are mode, start"),
        ({"reasoning": {"end": "x"}}, "start and end go together"),
        ({"reasoning": {"start": "", "end": ""}}, "end must be a non-empty string"),
        ({"reasoning": {"answer_share": 2}}, r"answer_share must be in \[0, 1\]"),
        ({"reasoning": {"max_tokens": -1}}, "max_tokens must be an int >= 0"),
        ({"max_reasoning_tokens": -1}, "max_reasoning_tokens must be at least 0"),
        ({"max_reasoning_tokens": 2.0}, "max_reasoning_tokens must be int"),
        ({"reasoning": False, "max_reasoning_tokens": 3}, "contradicts reasoning=False"),
        ({"reasoning": {"max_tokens": 4}, "max_reasoning_tokens": 3}, "contradicts reasoning's"),
    ],
)
def test_options_that_make_no_sense_are_named(options, says):
    with pytest.raises(InvalidRequest, match=says):
        resolve_options(options)


def finished(text: str, reason: str, constraint: Regex | None = None) -> Request:
    made = plan(Reasoning(mode="auto"), "<think>", is_constrained=constraint is not None)
    compiled: Future | None = None
    if constraint is not None:
        compiled = Future()
        compiled.set_result(LLGuidanceBackend(THINK).compile(constraint))
    request = Request(0, [65], SamplingParams(), 99, compiled, (), made.progress)
    for token_id in encode(text, THINK):
        request.token_ids.append(token_id)
        request.append_text(token_id, THINK.token_bytes[token_id] or b"")
    request.status, request.finish_reason = RequestStatus.FINISHED, reason
    request.end_text()
    return request


def test_a_generation_tells_reasoning_from_answer_and_counts_it():
    task = resolve_options({"regex": "[0-9]+"})
    request = finished("It is 3, no 4.</think>\n\n42", "stop", Regex("[0-9]+"))
    one = to_generation(request, task, THINK)
    assert (one.value, one.text, one.reasoning) == ("42", "42", "It is 3, no 4.")
    assert one.usage.completion_tokens == 14 + 1 + 1 + 2
    assert one.usage.reasoning_tokens == one.stats.constraint_start == 16
    assert one.token_ids == tuple(encode("It is 3, no 4.</think>\n\n42", THINK))


def test_an_answer_that_is_whole_where_it_was_cut_is_judged_without_its_reasoning():
    request = finished("7 or 8?</think>42", "length", Regex("[0-9]{2}"))
    assert to_generation(request, resolve_options({"regex": "[0-9]{2}"}), THINK).value == "42"


def test_an_output_that_ends_before_its_answer_is_no_result_though_no_text_would_be_one():
    """The empty text is one of the grammar's, and the model has not said so."""
    request = finished("Hm", "length", Regex("[0-9]*"))
    with pytest.raises(Truncated, match="before its reasoning was over; raise max_tokens"):
        to_generation(request, resolve_options({"regex": "[0-9]*"}), THINK)


def test_free_text_that_ends_in_reasoning_has_no_answer():
    one = to_generation(finished("Hm", "length"), resolve_options({}), THINK)
    assert (one.text, one.reasoning, one.stats.constraint_start) == ("", "Hm", None)
