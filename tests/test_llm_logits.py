"""Bias, penalties and logprobs of a real model."""

from __future__ import annotations

import math

import pytest

from structspec import LLM, InvalidRequest, TokenLogprob

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
}
PROMPT = "The largest city of France, and whether it is big, as JSON."


def numbers(logprobs: tuple[TokenLogprob, ...] | None) -> list[float]:
    assert logprobs is not None
    return [x for one in logprobs for x in (one.logprob, *(top for _, top in one.top))]


def test_speculation_changes_no_logprob_under_a_grammar(llm: LLM) -> None:
    asked = {"schema": CITY, "logprobs": 2, "frequency_penalty": 0.3, "temperature": 0.0}
    one = llm.generate_raw(PROMPT, **asked)
    other = llm.generate_raw(PROMPT, speculative=False, **asked)
    assert one.token_ids == other.token_ids
    assert one.stats.num_target_steps < other.stats.num_target_steps
    assert [each.token_id for each in one.logprobs or ()] == list(one.token_ids)
    assert numbers(one.logprobs) == pytest.approx(numbers(other.logprobs), abs=1e-3)


def test_raw_ones_are_the_models_and_processed_ones_what_the_mask_leaves(llm: LLM) -> None:
    asked = {"schema": CITY, "logprobs": 20, "temperature": 0.0}
    raw = llm.generate_raw(PROMPT, **asked)
    masked = llm.generate_raw(PROMPT, logprobs_mode="processed", **asked)
    assert raw.token_ids == masked.token_ids
    for one, other in zip(raw.logprobs or (), masked.logprobs or (), strict=True):
        assert one.logprob <= other.logprob + 1e-4  # a mask takes others away
        assert len(one.top) == 20 and other.top[0][0] == other.token_id
        mass = sum(math.exp(logprob) for _, logprob in other.top)
        assert mass <= 1 + 1e-4
    assert any(len(one.top) == 1 and one.logprob == 0 for one in masked.logprobs or ())


def test_a_prompt_has_one_for_each_token_but_the_first_however_often_it_is_read(llm: LLM) -> None:
    told = [llm.generate_raw("One two three", max_tokens=1, prompt_logprobs=0) for _ in range(2)]
    for one in told:
        assert len(one.prompt_logprobs or ()) == one.usage.prompt_tokens - 1
        assert one.logprobs is None
    assert numbers(told[0].prompt_logprobs) == pytest.approx(
        numbers(told[1].prompt_logprobs), abs=1e-3
    )


def test_a_bias_decides_what_is_written_and_a_grammar_what_may_be(llm: LLM) -> None:
    usual = llm.generate_raw("Say yes.", max_tokens=1, temperature=0.0).token_ids[0]
    chosen = (usual + 1) % 1000 + 100
    biased = llm.generate_raw("Say yes.", max_tokens=2, logit_bias={str(chosen): 100})
    assert biased.token_ids == (chosen, chosen)
    assert llm.generate("Say yes.", choices=["yes"], logit_bias={chosen: 100}) == "yes"
    with pytest.raises(InvalidRequest, match="logit_bias holds the token 99999999"):
        llm.generate("Say yes.", logit_bias={99999999: 1})


def test_penalties_keep_a_model_from_saying_the_same_for_ever(llm: LLM) -> None:
    prompt = "a b a b a b a b a b a b"
    asked = {"max_tokens": 16, "temperature": 0.0, "ignore_eos": True}
    usual = llm.generate_raw(prompt, **asked).token_ids
    held = llm.generate_raw(prompt, presence_penalty=2.0, frequency_penalty=2.0, **asked).token_ids
    assert len(set(held)) > len(set(usual))


def test_details_say_what_the_grammar_wrote_and_what_it_changed(llm: LLM) -> None:
    asked = {"schema": CITY, "temperature": 0.0, "token_details": 3}
    told, plain = llm.generate_raw(PROMPT, **asked), llm.generate_raw(PROMPT, schema=CITY)
    assert told.text == plain.text and plain.token_details is None
    assert told.token_details is not None
    assert [one.token_id for one in told.token_details] == list(told.token_ids)
    origins = [one.origin for one in told.token_details]
    assert origins.count("forced") == told.stats.accepted_by_source["forced"] >= 3
    for one in told.token_details:
        assert one.logprob <= one.masked_logprob + 1e-4  # a mask takes others away
        assert (one.drafter is not None) is (one.origin == "drafted")
