"""How the model spells forced text, learned from what it writes where that was drafted.

Canonical tokens are a first guess. A model may write `{` `"` where the tokenizer has `{"`, or
` true` where the forced text ends in a blank and a draft can only say ` `:

    forced      {"name": "            is_paid":␣
    canonical   {"  name  ":  ␣"      …  ":  ␣
    written     {                     …  ":  ␣true
    learned     `{"` is begun with `{`    `␣` behind `paid` `":` is the start of a longer token
    next time   {  "  name  ":  ␣"    …  ":
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from structspec.drafters.spelling import spell
from structspec.vocabulary import Vocabulary

_LONGER = -1  # stands for every token that begins with the whole text and goes on
_NUM_CONTEXT_TOKENS = 2  # what is forced behind `"paid" ":` differs from behind `"age" ":`
_MAX_PLACES = 4096
_DECAY = 0.8  # of older evidence with each new one: a habit is revised within a few tokens
_FORGOTTEN = 0.01  # evidence of no more account
_DOUBT = 1.5  # how often a canonical token counts as seen before it is given up everywhere


@dataclass(frozen=True, slots=True)
class Place:
    """A canonical token behind the tokens before it."""

    context: tuple[int, ...] | None  # None is behind any
    token_id: int
    is_last: bool  # of the text, so that what comes next may merge with it


@dataclass(frozen=True, slots=True)
class Opening:
    """A place in a forced text, and the text from there on."""

    place: Place
    text: bytes


@dataclass(slots=True)
class Spelling:
    """Tokens, and what they had to spell: by index, where a token of them or the next begins."""

    token_ids: list[int] = field(default_factory=list)
    openings: dict[int, Opening] = field(default_factory=dict)


class Habits:
    """Which tokens the model begins forced texts with; used by the engine's thread alone.

    Only what was once not canonical is remembered, the latest 4,096 places of it, and what is
    known of a place in its very context counts before what is known of it anywhere.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._scores: OrderedDict[Place, dict[int, float]] = OrderedDict()  # by token

    def spell(self, text: bytes, context: Sequence[int], limit: int) -> Spelling:
        """At most `limit` tokens that spell a beginning of `text` as it would follow `context`.

        A last token that what comes next usually merges with is left out.
        """
        spelling = Spelling()
        canonical = spell(text, context, self._vocabulary, limit + 1)
        while canonical and len(spelling.token_ids) < limit:
            token_id, *canonical = canonical
            before = (*context, *spelling.token_ids)[-_NUM_CONTEXT_TOKENS:]
            opening = Opening(Place(before, token_id, is_last=not canonical), text)
            spelling.openings[len(spelling.token_ids)] = opening
            chosen = self._choose(opening)
            if chosen == _LONGER:
                break
            spelling.token_ids.append(chosen)
            text = text[len(self._bytes_of(chosen)) :]
            if chosen != token_id:  # no canonical token begins here: the rest begins afresh
                canonical = spell(text, (), self._vocabulary, limit + 1)
        return spelling

    def learn(self, opening: Opening, written: int) -> None:
        """Take in that the model wrote this token there; one that is other text teaches nothing."""
        place, data = opening.place, self._bytes_of(written)
        if data and opening.text.startswith(data):
            outcome = written
        elif place.is_last and data.startswith(opening.text):
            outcome = _LONGER
        else:
            return
        is_surprise = outcome != self._choose(opening)
        if outcome != _LONGER:  # what merges depends on what may come next, there and not anywhere
            is_new = outcome != place.token_id
            self._count(_anywhere(place), outcome, is_new=is_new, doubt=_DOUBT)
        self._count(place, outcome, is_new=is_surprise, doubt=0.0)
        while len(self._scores) > _MAX_PLACES:
            self._scores.popitem(last=False)

    def _choose(self, opening: Opening) -> int:
        """The token to begin with, or _LONGER; of equally good ones the canonical."""
        place = opening.place
        scores = self._scores.get(place) or self._scores.get(_anywhere(place))
        if scores is None:
            return place.token_id
        fitting = [
            token_id
            for token_id in scores
            if token_id in (place.token_id, _LONGER)
            or opening.text.startswith(self._bytes_of(token_id))
        ]
        return max(fitting, key=scores.__getitem__)

    def _count(self, place: Place, outcome: int, *, is_new: bool, doubt: float) -> None:
        """Add to what is known of a place; nothing is remembered of one before `is_new`."""
        scores = self._scores.get(place)
        if scores is None:
            if not is_new:
                return
            scores = {place.token_id: doubt}
        kept = {
            token_id: score * _DECAY
            for token_id, score in scores.items()
            if score > _FORGOTTEN or token_id == place.token_id
        }
        self._scores[place] = {**kept, outcome: kept.get(outcome, 0.0) + 1.0}
        self._scores.move_to_end(place)

    def _bytes_of(self, token_id: int) -> bytes:
        return self._vocabulary.token_bytes[token_id] or b""


def _anywhere(place: Place) -> Place:
    return Place(None, place.token_id, place.is_last)
