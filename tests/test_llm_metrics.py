"""What the real engine says of itself, and of one request."""

import pytest

from structspec import LLM
from structspec.prometheus import to_prometheus

POEM = "Write two sentences about the sea."


def test_metrics_grow_by_what_a_call_has_cost(llm: LLM):
    before = llm.metrics()
    one = llm.generate_raw(POEM, regex="[a-z ]{5,20}")
    after = llm.metrics()
    assert after.generation_tokens - before.generation_tokens == one.usage.completion_tokens
    assert after.prompt_tokens - before.prompt_tokens == one.usage.prompt_tokens
    spec, spec_before = after.spec_decode, before.spec_decode
    assert spec.num_draft_tokens - spec_before.num_draft_tokens == one.stats.num_drafted
    assert spec.num_accepted_tokens - spec_before.num_accepted_tokens == one.stats.num_accepted
    assert after.grammar.num_grammar_total == before.grammar.num_grammar_total + 1
    assert after.request_success["stop"] == before.request_success["stop"] + 1
    assert after.num_requests_running == after.num_requests_waiting == 0
    assert 0 <= after.kv_cache_usage_perc < 1
    text = to_prometheus(after, {"model_name": "smollm2-135m"})
    assert f'generation_tokens_total{{model_name="smollm2-135m"}} {after.generation_tokens}' in text


@pytest.mark.parametrize("drafters", [("prediction",), ("ngram",)])
def test_predicted_tokens_are_told_by_whether_they_appear_in_the_output(llm: LLM, drafters):
    plain = llm.generate_raw(POEM, max_tokens=12, temperature=0, speculative=False)
    assert plain.stats.accepted_prediction_tokens == plain.stats.rejected_prediction_tokens == 0
    wrong = [0, 0, 0]
    assert 0 not in plain.token_ids
    predicted = [*plain.token_ids[:4], *wrong, *plain.token_ids[4:]]
    one = llm.generate_raw(
        POEM,
        max_tokens=12,
        temperature=0,
        prediction=predicted,
        speculative={"drafters": list(drafters)},
    )
    assert one.token_ids == plain.token_ids
    assert one.stats.accepted_prediction_tokens == 12
    assert one.stats.rejected_prediction_tokens == 3
    assert set(one.stats.drafted_by_source) <= set(drafters)
