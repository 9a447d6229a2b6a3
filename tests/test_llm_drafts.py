"""What a call may say about its drafts, on the real model: fewer steps or more, the same tokens."""

import pytest

from structspec import LLM, InvalidRequest, OutputInvalid, Speculation
from structspec.options import resolve_options
from structspec.request import Usage

POEM = "Write two sentences about the sea."


@pytest.fixture(scope="module")
def plain(llm: LLM):
    return llm.generate_raw(POEM, max_tokens=12, temperature=0, speculative=False)


def steps_of(llm: LLM, plain, **options):
    """How many steps the same tokens took."""
    generation = llm.generate_raw(POEM, max_tokens=12, temperature=0, **options)
    assert generation.token_ids == plain.token_ids
    return generation.stats.num_target_steps


def test_without_drafts_every_token_takes_a_step(plain):
    assert plain.stats.num_target_steps == len(plain.token_ids) == 12
    assert plain.stats.num_drafted == 0


def test_a_right_prediction_is_written_in_a_few_steps(llm: LLM, plain):
    wish = Speculation(drafters=("prediction",))
    assert steps_of(llm, plain, prediction=list(plain.token_ids), speculative=wish) <= 3
    assert steps_of(llm, plain, prediction=plain.text, speculative=wish) <= 5


def test_a_prediction_is_drafted_in_pieces_of_the_wanted_size(llm: LLM, plain):
    wish = {"num_speculative_tokens": 3, "drafters": ["prediction"]}
    assert 12 / 4 <= steps_of(llm, plain, prediction=list(plain.token_ids), speculative=wish) <= 8


def test_a_wrong_prediction_changes_nothing(llm: LLM, plain):
    wish = Speculation(drafters=("prediction",))
    words = "A cat sat on the wall. The dog did not like it at all, and so it barked."
    assert steps_of(llm, plain, prediction=words, speculative=wish) <= 12


def test_a_prediction_that_spells_a_special_token_is_text(llm: LLM):
    ids = llm._service._encode_prediction("<|im_end|>")
    assert len(ids) > 1
    assert not set(ids) & set(llm._service.vocabulary.stop_token_ids)


def test_a_prediction_beyond_the_vocabulary_is_refused(llm: LLM):
    with pytest.raises(InvalidRequest, match="holds the token 99999999"):
        llm.generate(POEM, prediction=[1, 99_999_999])


def test_a_prediction_that_no_output_can_be_as_long_as_is_refused(llm: LLM):
    most = llm._service.max_model_len
    assert len(llm._service._encode_prediction((1,) * most)) == most
    for prediction in ([1] * (most + 1), "a b " * most):
        with pytest.raises(InvalidRequest, match=f"no output has more than the {most} of"):
            llm.generate(POEM, prediction=prediction)


def test_a_second_attempt_has_the_same_prediction(llm: LLM):
    service = llm._service
    first = service.prepare(POEM, resolve_options({"prediction": [1, 2]}))
    second = service.next_attempt(first, OutputInvalid("no", usage=Usage(1, 1)))
    assert second is not None and second.request is not first.request
    assert second.request.prediction_token_ids == (1, 2)


def test_a_drafter_that_is_not_there_is_refused(llm: LLM):
    with pytest.raises(InvalidRequest, match="no drafter 'custom_class'"):
        llm.generate(POEM, speculative={"drafters": ["custom_class"]})
