"""Reading a finished text by a form: where its JSON stands, and whether all of it may be right.

A text may be read in several ways; it is right if it is in one of them. A part is read from all the
places at once that it may begin at, so that many ways cost little more than one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from structspec.grammars.form import (
    AnyText,
    Cfg,
    Either,
    Form,
    Json,
    Marker,
    Pattern,
    Repeat,
    Sequence,
    Text,
    leaves,
)
from structspec.grammars.json_ends import json_end
from structspec.grammars.regex import read_regex
from structspec.grammars.regexes.derive import match_ends

IsRight = Callable[[Json, str], bool]  # a JSON part, and what is written for it

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


def is_readable(form: Form) -> bool:
    """Whether texts can be read by this form: grammars inside are not parsed here."""
    return not any(isinstance(leaf, Cfg) for leaf in leaves(form))


def reads(form: Form, text: str, is_right: IsRight) -> bool:
    """Whether a text of the form is right in one of its readings."""
    return len(text) in _Reader(text, is_right).ends(form, frozenset([0]))


@dataclass(slots=True)
class _Reader:
    text: str
    is_right: IsRight
    _known: dict[tuple[Json, int], tuple[int, ...]] = field(default_factory=dict)

    def ends(self, form: Form, starts: frozenset[int]) -> frozenset[int]:
        """Where a part may end that begins at one of `starts`."""
        match form:
            case Text(text) | Marker(text):
                length = len(text)
                return frozenset(s + length for s in starts if self.text.startswith(text, s))
            case Json():
                return frozenset(end for start in sorted(starts) for end in self._json(form, start))
            case AnyText():
                return frozenset(self._free(form, starts))
            case Pattern(pattern):
                return frozenset(match_ends(read_regex(pattern), self.text, starts))
            case Either(parts):
                return frozenset[int]().union(*(self.ends(part, starts) for part in parts))
            case Sequence(parts):
                for part in parts:
                    starts = self.ends(part, starts)
                return starts
            case Repeat():
                return self._repeat(form, starts)
            case Cfg():
                raise AssertionError("a grammar inside is not read")

    def _free(self, form: AnyText, starts: frozenset[int]) -> Iterator[int]:
        """Every place that free text reaches, each once."""
        found = dict.fromkeys(form.excludes, -1)  # the next of each from the start that is tried
        first = 0
        for start in sorted(starts):
            last = len(self.text)
            if form.max_chars is not None:
                last = min(last, start + form.max_chars)
            for excluded, place in found.items():
                if place < start:
                    place = self.text.find(excluded, start)
                    found[excluded] = len(self.text) + 1 if place < 0 else place
                last = min(last, found[excluded] + len(excluded) - 1)
            yield from range(max(first, start), last + 1)
            first = max(first, last + 1)

    def _repeat(self, form: Repeat, starts: frozenset[int]) -> frozenset[int]:
        places, count = starts, 0
        found = places if form.minimum == 0 else frozenset[int]()
        while places and (form.maximum is None or count < form.maximum):
            places = self.ends(form.part, places)
            count += 1
            if count >= form.minimum:
                places -= found  # what goes on from there has been found
                found |= places
        return found

    def _json(self, form: Json, start: int) -> tuple[int, ...]:
        key = (form, start)
        if key not in self._known:
            self._known[key] = tuple(self._json_ends(form, start))
        return self._known[key]

    def _json_ends(self, form: Json, start: int) -> Iterator[int]:
        end = json_end(self.text, start)
        if end is None:
            return
        stops = [end]
        if _NUMBER.fullmatch(self.text, start, end):  # 12 may be 1, and a 2 that follows
            stops = [e for e in range(start + 1, end + 1) if _NUMBER.fullmatch(self.text, start, e)]
        for stop in stops:
            if self.is_right(form, self.text[start:stop]):
                yield stop
