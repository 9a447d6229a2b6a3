"""New tokens mean the same to a request one by one as all at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.engine.progress import append_tokens
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary
from tests.engine.toy import VOCABULARY

BYTES = Vocabulary.bytes()
TOKENS = {"toy": VOCABULARY, "bytes": BYTES}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(TOKENS)), max_tokens=st.integers(1, 30))
def test_tokens_that_come_together_are_taken_as_each_alone(data, name, max_tokens):
    vocabulary = TOKENS[name]
    token_ids = st.integers(0, vocabulary.vocab_size - 1)
    params = SamplingParams(
        stop=data.draw(st.sampled_from([(), (), ("ab",), ("c", "é")])),
        stop_token_ids=data.draw(st.sampled_from([(), (), (2,)])),
        min_tokens=data.draw(st.integers(0, 5)),
    )
    together, alone = (Request(0, [0, 1], params, max_tokens) for _ in range(2))
    reasons = None, None
    while reasons == (None, None):
        new = data.draw(st.lists(token_ids, min_size=1, max_size=8))
        one_by_one = None
        for token_id in new:
            one_by_one = append_tokens(alone, [token_id], vocabulary)
            if one_by_one is not None:
                break
        reasons = append_tokens(together, new, vocabulary), one_by_one
    assert reasons[0] == reasons[1]
    assert together.token_ids == alone.token_ids
    assert together.text.text == alone.text.text
    assert together.text.stop_string == alone.text.stop_string
