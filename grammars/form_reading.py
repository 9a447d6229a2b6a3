"""Reading a finished text by a form: where its JSON stands, and whether all of it may be right.

A text may be read in several ways; it is right if it is in one of them. Ends of a part are found
as sets, each part at each place once.
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
    return len(text) in _Reader(text, is_right).ends(form, 0)


@dataclass(slots=True)
class _Reader:
    text: str
    is_right: IsRight
    _known: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)

    def ends(self, form: Form, start: int) -> frozenset[int]:
        """Where a part may end that begins at `start`."""
        key = (id(form), start)
        if key not in self._known:
            self._known[key] = frozenset(self._ends(form, start))
        return self._known[key]

    def _ends(self, form: Form, start: int) -> Iterator[int] | frozenset[int]:
        match form:
            case Text(text) | Marker(text):
                return iter([start + len(text)] if self.text.startswith(text, start) else [])
            case Json():
                return self._json(form, start)
            case AnyText():
                return iter(range(start, self._limit(form, start) + 1))
            case Pattern(pattern):
                return match_ends(read_regex(pattern), self.text, start)
            case Either(parts):
                return frozenset[int]().union(*(self.ends(part, start) for part in parts))
            case Sequence(parts):
                return self._row(parts, start)
            case Repeat():
                return self._repeat(form, start)
            case Cfg():
                raise AssertionError("a grammar inside is not read")

    def _row(self, parts: tuple[Form, ...], start: int) -> frozenset[int]:
        places = frozenset([start])
        for index, part in enumerate(parts):
            following = parts[index + 1] if index + 1 < len(parts) else None
            if isinstance(part, AnyText) and isinstance(following, Text | Marker):
                # only ends that the next part can go on from: free text has one at every character
                places = frozenset(e for p in places for e in self._until(part, following, p))
            else:
                places = frozenset(e for p in places for e in self.ends(part, p))
        return places

    def _until(self, part: AnyText, following: Text | Marker, start: int) -> Iterator[int]:
        wanted = following.text if isinstance(following, Text) else following.name
        limit = self._limit(part, start)
        end = self.text.find(wanted, start)
        while 0 <= end <= limit:
            yield end
            end = self.text.find(wanted, end + 1)

    def _limit(self, part: AnyText, start: int) -> int:
        """The last place that free text from `start` on may end at."""
        limits = [len(self.text)]
        if part.max_chars is not None:
            limits.append(start + part.max_chars)
        for excluded in part.excludes:
            found = self.text.find(excluded, start)
            if found >= 0:
                limits.append(found + len(excluded) - 1)
        return min(limits)

    def _repeat(self, form: Repeat, start: int) -> frozenset[int]:
        places = frozenset([start])
        found = places if form.minimum == 0 else frozenset[int]()
        seen: set[int] = set()
        count = 0
        while places and (form.maximum is None or count < form.maximum):
            places = frozenset(end for place in places for end in self.ends(form.part, place))
            count += 1
            if count >= form.minimum:
                places -= seen  # what went on from there has been found
                seen |= places
                found |= places
        return found

    def _json(self, form: Json, start: int) -> Iterator[int]:
        end = json_end(self.text, start)
        if end is None:
            return
        stops = [end]
        if _NUMBER.fullmatch(self.text, start, end):  # 12 may be 1, and a 2 that follows
            stops = [e for e in range(start + 1, end + 1) if _NUMBER.fullmatch(self.text, start, e)]
        for stop in stops:
            if self.is_right(form, self.text[start:stop]):
                yield stop
