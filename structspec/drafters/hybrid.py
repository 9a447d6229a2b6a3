"""The default drafter: the surest kind of draft at every place, steered by the grammar.

Each request is walked through its grammar. Where that would take longer than a good part of the
model's own step, what is sure is drafted for all requests at once (`quick.py`).

while there are slots left:
    forced text, without its last token if that may merge with what follows
    else, up to the first token the matcher refuses:
        how the prediction goes on, where the request has one
        else what a finished request wrote behind the same sixteen tokens or more
        else what followed the last three tokens or more, the last time they occurred
        else the last token of the forced text, if it stood at such places before
        else a value copied from the prompt's text, and its end
        else what followed the last token or two
    else the stop token if nothing but the end is left
    else stop drafting
roll the matcher back
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count

from structspec.drafters.base import Glimpse, count_hopeful, count_slots
from structspec.drafters.copying import TextCopier, closing_text
from structspec.drafters.forced import StopFinder, find_spelled, take_certain
from structspec.drafters.haste import Haste
from structspec.drafters.ngram import NgramDrafter
from structspec.drafters.prediction import PredictionDrafter
from structspec.drafters.quick import Guess, QuickDrafter
from structspec.drafters.spelling import spell
from structspec.drafters.suffix import make_suffix
from structspec.drafters.tracked import left_in_place, track
from structspec.drafters.trust import SpellingTrust, TailTrust
from structspec.drafters.walk import Walk
from structspec.engine.batch import Batch, Draft, ScheduledRequest, no_draft
from structspec.grammars.base import BatchMatching
from structspec.grammars.wrapping import WrappedMatching
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig
from structspec.vocabulary import Vocabulary

_SURE_MATCH = 3  # tokens: a match of so many is better than one of characters
# Objects of one schema share their keys: fewer tokens would draft the last one's values.
_REMEMBERED_MATCH = 16
_MOST_ALIKE = 64  # steps of the same requests without a look for finished ones


_Take = Callable[[Walk], int]  # drafts something, and says how much


class HybridDrafter:
    """Drafts of every kind that needs no model, each going on where the one before it stopped.

    In steps with too many requests for guesses it does nothing but take what is certain.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        config: SpeculativeConfig,
        step_seconds: Callable[[int], float] | None = None,
    ) -> None:
        """`step_seconds`: what the model's own step with so many rows takes, if that is known."""
        self._vocabulary = vocabulary
        self._ngram = NgramDrafter(config)
        self._copier = TextCopier(vocabulary)
        self._suffix = make_suffix(config)
        self._trust = SpellingTrust()
        self._tails = TailTrust()
        self._find_stop = StopFinder(vocabulary)
        self._remembered_match = min(_REMEMBERED_MATCH, config.suffix_decoding_max_tree_depth - 1)
        self._prediction = PredictionDrafter(lambda request: request.prediction_token_ids)
        # of each kind what is surer than any other's rest, and that rest
        self._kinds: dict[str, tuple[_Take, ...]] = {
            "forced": (self._take_forced, self._take_held_back),
            "prediction": (self._take_predicted,),
            "suffix": (self._take_likely,),
            "ngram": (self._look_up_surely, self._look_up),
        }
        self._orders: dict[tuple[str, ...], list[tuple[str, _Take]]] = {}
        self._stop_token_ids = frozenset(vocabulary.stop_token_ids)
        self._quick = QuickDrafter(self._ngram, self._guess_surely, self._stop_token_ids)
        self._haste = Haste(step_seconds)
        self._last_requests: list[Request] = []
        self._num_alike = 0  # steps with these
        self._wrapped: dict[BatchMatching, WrappedMatching] = {}
        self._max_guess_rows = config.guess_rows
        self._num_speculative_tokens = config.num_speculative_tokens

    def propose(self, batch: Batch) -> Draft:
        """One-hot drafts, never with a token that the grammar refuses."""
        max_num_guessed = self._max_num_guessed(batch)
        num_hopeful = count_hopeful(batch) if max_num_guessed else 0
        self._observe(batch, remembers=max_num_guessed > 0)
        if not any(scheduled.num_draft_slots for scheduled in batch.requests):
            return no_draft(len(batch.requests), num_hopeful)
        self._trust.judge()
        self._tails.judge()
        faults: list[Exception] = []
        walks = self._walk_all(batch.requests, max_num_guessed, faults)
        return Draft(
            [walk.token_ids for walk in walks],
            [None] * len(walks),
            [walk.is_forced for walk in walks],
            [walk.num_certain for walk in walks],
            num_hopeful,
            [walk.sources for walk in walks],
            faults,
        )

    def glimpse(self, requests: Sequence[Request], limit: int) -> list[Glimpse]:
        """The surest guesses for each, those that are looked up in one call."""
        others = [
            self._guess_surely(Walk(request, None, limit, limit, ())) or ("", ())
            for request in requests
        ]
        is_asked = [
            not token_ids and "ngram" in request.params.speculation.chain
            for request, (_, token_ids) in zip(requests, others, strict=True)
        ]
        found = iter(self._ngram.glimpse(list(compress(requests, is_asked)), limit))
        return [
            next(found) if asked else Glimpse((source, 0), token_ids)
            for asked, (source, token_ids) in zip(is_asked, others, strict=True)
        ]

    def _observe(self, batch: Batch, *, remembers: bool) -> None:
        """Let go of finished requests, and remember what they wrote.

        Where a step has the requests of the one before, none of them is finished; one that sat out
        may be, which is seen a little later.
        """
        requests = [scheduled.request for scheduled in batch.requests]
        if remembers:
            self._suffix.observe(batch)
        self._num_alike += 1
        if requests != self._last_requests or self._num_alike >= _MOST_ALIKE:
            self._last_requests, self._num_alike = requests, 0
            for kind in (self._prediction, self._ngram, self._copier):
                kind.forget_finished()

    def _max_num_guessed(self, batch: Batch) -> int:
        """How many drafts of one request may be guesses: rows are cheap only up to a number."""
        num_sampled = sum(scheduled.is_sampled for scheduled in batch.requests)
        max_num_rows = self._max_guess_rows // max(1, num_sampled)
        return max(0, min(self._num_speculative_tokens, max_num_rows - 1))

    def _walk_all(
        self,
        requests: Sequence[ScheduledRequest],
        max_num_guessed: int,
        faults: list[Exception],
    ) -> list[Walk]:
        """Walk each request, or draft for all at once where there is no time for that.

        A fault in the walk of one costs the others nothing.
        """
        walks = [self._begin(scheduled, max_num_guessed) for scheduled in requests]
        is_open = [walk.num_free > 0 for walk in walks]
        if self._haste.has_time_for(sum(is_open)):
            for index in self._haste.timed(compress(count(), is_open)):
                try:
                    walks[index] = self._walk(requests[index], walks[index])
                except Exception as fault:
                    walks[index] = _nothing(requests[index].request)
                    faults.append(fault)
        else:
            self._quick.draft(requests, walks)
        return walks

    def _begin(self, scheduled: ScheduledRequest, max_num_guessed: int) -> Walk:
        request, num_slots = scheduled.request, count_slots(scheduled)
        max_num_guessed = min(max_num_guessed, scheduled.max_num_guesses)
        if request.needs_mask:  # guesses would need a row each, and the last one has just failed
            max_num_guessed = 0
        stops, matching = self._stop_token_ids, self._matching_of(request)
        return Walk(request, track(request), num_slots, max_num_guessed, stops, matching)

    def _matching_of(self, request: Request) -> BatchMatching | None:
        """What may move its matcher by many tokens in one call, if anything does."""
        if request.compiled is None or request.matcher is None:
            return None
        backend = request.compiled.result().backend
        if not request.wrappers:
            return backend
        if backend not in self._wrapped:
            self._wrapped[backend] = WrappedMatching(self._vocabulary, backend)
        return self._wrapped[backend]

    def _walk(self, scheduled: ScheduledRequest, walk: Walk) -> Walk:
        matcher = walk.matcher
        if matcher is None:
            self._draft(scheduled, walk)
            return walk
        drafted = _nothing(walk.request)  # unless all goes well
        with left_in_place(walk.request, matcher):
            self._draft(scheduled, walk)
            drafted = walk
        return drafted

    def _guess_surely(self, walk: Walk) -> Guess | None:
        """What is surer than a lookup, by the order of the request's chain, if anything is."""
        request, chain = walk.request, walk.request.params.speculation.chain
        for source in chain[: chain.index("ngram")] if "ngram" in chain else chain:
            if source == "prediction" and request.prediction_token_ids:
                continued = self._prediction.continue_from
            elif source == "suffix":
                continued = self._continue_likely
            else:
                continue
            if token_ids := continued(request, walk.token_ids, walk.num_guesses):
                return source, token_ids
        return None

    def _draft(self, scheduled: ScheduledRequest, walk: Walk) -> None:
        matcher, chain = walk.matcher, walk.request.params.speculation.chain
        if matcher is not None and "forced" in chain:
            certain = take_certain(scheduled, matcher, walk.num_slots, self._stop_token_ids)
            walk.num_certain = walk.note(certain)
            walk.count("forced", walk.num_certain)
        if not scheduled.may_guess:
            return
        order = self._orders.get(chain) or self._order_of(chain)
        while walk.num_free > 0:
            if not any(walk.count(source, take(walk)) for source, take in order):
                break
        if matcher is not None:
            if walk.num_free > 0 and "forced" in chain:
                num_taken = walk.take(self._find_stop(matcher), is_forced=True)
                walk.count("forced", num_taken)
            self._trust.note(walk.request, walk.token_ids, walk.spelled)

    def _order_of(self, chain: tuple[str, ...]) -> list[tuple[str, _Take]]:
        """What to try, and who drafts by it: all that is sure before the rest."""
        order = [
            (name, take)
            for place in range(2)
            for name in chain
            for take in self._kinds[name][place : place + 1]
        ]
        self._orders[chain] = order
        return order

    def _take_forced(self, walk: Walk) -> int:
        matcher = walk.matcher
        if matcher is None:
            return 0
        num_taken = walk.take(matcher.forced_tokens(walk.num_free), is_forced=True)
        if walk.num_free <= 0 or not self._trust.allows():
            return num_taken
        spelled, tail = find_spelled(matcher, walk.context, self._vocabulary, walk.num_free)
        num_spelled = walk.take(spelled, is_forced=True, is_spelled=True)
        if tail is not None and num_spelled == len(spelled):
            walk.held_back = tail, len(walk.token_ids)
        return num_taken + num_spelled

    def _take_held_back(self, walk: Walk) -> int:
        """Draft the last token of a forced text: nothing else has said what follows it."""
        if walk.held_back is None or walk.held_back[1] != len(walk.token_ids):
            return 0
        tail, _ = walk.held_back
        walk.held_back = None
        if not self._tails.allows(walk.request, walk.token_ids, tail):
            return 0
        return walk.take([tail], is_forced=True, is_spelled=True)

    def _take_predicted(self, walk: Walk) -> int:
        if walk.num_guesses <= 0 or not walk.request.prediction_token_ids:
            return 0
        return walk.take(
            self._prediction.continue_from(walk.request, walk.token_ids, walk.num_guesses)
        )

    def _take_likely(self, walk: Walk) -> int:
        """Draft what a finished request wrote behind the same tokens.

        A request's own text is left to prompt lookup, which finds more in it, where it may.
        """
        return walk.take(self._continue_likely(walk.request, walk.token_ids, walk.num_guesses))

    def _continue_likely(self, request: Request, draft: Sequence[int], limit: int) -> list[int]:
        if "ngram" not in request.params.speculation.chain:
            return self._suffix.continue_from(request, draft, limit)
        least = self._remembered_match
        return self._suffix.continue_as_others(request, draft, limit, min_match=least)

    def _look_up_surely(self, walk: Walk) -> int:
        """Draft what followed a match that hardly is one by chance.

        Free text is not looked up behind what is drafted already: more would seldom hold.
        """
        if walk.matcher is None and walk.token_ids:
            return 0
        return self._take_repeated(walk, _SURE_MATCH)

    def _look_up(self, walk: Walk) -> int:
        """Draft a value from the prompt, else what followed the last token or two."""
        if walk.matcher is None and walk.token_ids:
            return 0
        return self._copy_value(walk) or self._take_repeated(walk, min_match=1)

    def _take_repeated(self, walk: Walk, min_match: int) -> int:
        return walk.take(
            self._ngram.continue_from(
                walk.request, walk.token_ids, walk.num_guesses, min_match=min_match
            )
        )

    def _copy_value(self, walk: Walk) -> int:
        if walk.matcher is None:
            return 0
        copied = self._copier.continue_from(walk.request, walk.token_ids, walk.num_guesses)
        if copied is None:
            return 0
        num_taken = walk.take(copied)
        text = closing_text(walk.matcher, self._vocabulary)
        return num_taken + walk.take(spell(text, walk.context, self._vocabulary, walk.num_guesses))


def _nothing(request: Request) -> Walk:
    return Walk(request, None, 0, 0, ())
