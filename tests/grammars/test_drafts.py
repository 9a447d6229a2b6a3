"""What can be done with many matchers by nothing but their laws."""

from hypothesis import given
from hypothesis import strategies as st

from structspec.grammars.base import Look, MatcherFailed, Seen
from structspec.grammars.drafts import look_each
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import TextsMatcher

BYTES = Vocabulary.bytes()
TEXT = b"abcd"


@given(
    guesses=st.lists(st.sampled_from(TEXT), max_size=6) | st.just([*TEXT]),
    limit=st.integers(0, 6),
    fails_at=st.integers(0, 6),
)
def test_a_look_ahead_leaves_matchers_where_they_were_though_one_fails_on_its_way(
    guesses, limit, fails_at
):
    broken, healthy = (TextsMatcher(BYTES, [TEXT]) for _ in range(2))
    take = broken.accept

    def take_some(token_id):
        if len(broken.token_ids) == fails_at:
            raise MatcherFailed("limit reached")
        return take(token_id)

    broken.accept = take_some
    found = look_each([Look(broken, guesses, limit), Look(healthy, guesses, limit)])
    held = [a == b for a, b in zip(guesses, TEXT, strict=False)]
    num_taken = min(limit, [*held, False].index(False))
    has_failed = fails_at <= num_taken and fails_at < min(len(guesses), limit)
    assert isinstance(found[0], MatcherFailed) if has_failed else found[0] == Seen(num_taken, [])
    assert found[1] == Seen(num_taken, [])
    assert broken.token_ids == healthy.token_ids == []
