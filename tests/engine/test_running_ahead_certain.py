"""Certain tokens in steps that run ahead: computed like known ones, also behind an unread token."""

from __future__ import annotations

from structspec.drafters.forced import ForcedDrafter
from tests.engine.recorder import Recorder
from tests.engine.toy import VOCABULARY
from tests.engine.watched import ALONG, Ask, Watched, make_config


def test_certain_tokens_are_computed_behind_a_last_token_that_is_foreseen():
    watched = Watched(drafter=ForcedDrafter(VOCABULARY))
    recorder = Recorder(watched.toy)
    ask = Ask(texts=(ALONG,), max_tokens=20)
    request = watched.start(ask)
    watched.run()
    ask.check(request)
    # 4 certain tokens and the one behind them, in each step: the text has 12 and a stop token, and
    # behind that nothing is drafted.
    stats = request.stats
    assert (stats.num_target_steps, stats.num_drafted, stats.num_accepted) == (3, 11, 11)
    order = [what for what, _ in recorder.events]
    assert order[:5] == ["forward", "sample", "forward", "read", "sample"]


def test_certain_tokens_end_where_the_last_token_is_not_foreseen():
    # Behind the certain c b comes one of two: nobody can say what follows before it is known.
    watched = Watched(drafter=ForcedDrafter(VOCABULARY))
    ask = Ask(texts=("cbbcc", "cbccc"))
    request = watched.start(ask)
    watched.step()
    assert (request.num_pending, request.is_held) == (3, False)
    watched.step()
    assert (request.num_output_tokens, request.num_pending) == (3, 1)
    watched.run()
    ask.check(request)


def test_max_tokens_inside_certain_tokens_is_exact():
    for max_tokens in range(1, 14):
        ask = Ask(texts=(ALONG,), max_tokens=max_tokens)
        watched = Watched(drafter=ForcedDrafter(VOCABULARY))
        request = watched.start(ask)
        watched.run()
        ask.check(request)


def test_a_stop_string_inside_certain_tokens_cuts_there():
    for start in range(8):
        ask = Ask(texts=(ALONG,), max_tokens=20, stop=(ALONG[start : start + 4],))
        watched = Watched(drafter=ForcedDrafter(VOCABULARY))
        request = watched.start(ask)
        watched.run()
        ask.check(request)
        assert VOCABULARY.decode_bytes(request.output_token_ids).endswith(ask.stop[0].encode())


def test_certain_tokens_fill_the_context_to_its_last_position_and_not_beyond():
    # 8 blocks of 2: the prompt and the output have 16 positions, and the last is never computed.
    for max_tokens in (13, 14):
        watched = Watched(make_config(num_blocks=8), ForcedDrafter(VOCABULARY))
        ask = Ask(texts=("cb" * 10,), max_tokens=max_tokens)
        request = watched.start(ask)
        watched.run()
        ask.check(request)
        assert request.stats.num_preemptions == 0


def test_certain_tokens_take_only_room_that_nobody_needs():
    watched = Watched(make_config(num_blocks=9, enable_prefix_caching=False))
    watched.toy.engine._drafter = ForcedDrafter(VOCABULARY)
    asks = [Ask((i, 1), ("cb" * 10, "a"), max_tokens=7) for i in range(2)]
    requests = [watched.start(ask) for ask in asks]
    watched.run()
    assert all(request.stats.num_preemptions == 0 for request in requests)
    for ask, request in zip(asks, requests, strict=True):
        ask.check(request)
