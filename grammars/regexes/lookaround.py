"""Anchors, word boundaries, lookahead and lookbehind, turned into plain parts, And and Not.

A pattern is built from its end: each part is given, as a function of what the last character
before it is, the regex of all that follows up to the end of the text. A lookahead then is an
intersection with what follows, `$` an intersection with nothing; a condition on the last character
(`^`, `\\b`, a lookbehind of one character) picks between what follows. A longer lookbehind is an
intersection with the run of plain parts before it, where that run shows all it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from structspec.errors import UnsupportedConstraint
from structspec.grammars.cfg import place
from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.derive import length_bounds
from structspec.grammars.regexes.pattern import (
    Choice,
    Join,
    Look,
    Loop,
    Pattern,
    Plain,
    Refused,
    choose,
    join,
    loop,
    walk,
)
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.syntax import (
    ANY_CHARACTER,
    ANYTHING,
    EMPTY,
    NOTHING,
    Alternatives,
    Characters,
    Empty,
    Regex,
    Repeat,
    Sequence,
    alternatives,
    both,
    characters,
    complement,
    repeat,
    sequence,
)

_Last = Ranges | None  # what the last character is one of; None: this is the start of the text
_Rest = Callable[[_Last], Regex]
_MAX_UNROLLED = 8
_LONG = 16  # items of a sequence


def build(tree: Pattern, text: str, *, searches: bool) -> Regex:
    """The texts a pattern matches, or with `searches` those it is found in.

    Raises UnsupportedConstraint, with the place in `text`, for a condition that And and Not of
    plain parts do not hold.
    """
    if isinstance(tree, Plain):
        return sequence(ANYTHING, tree.regex, ANYTHING) if searches else tree.regex
    builder = _Builder(text, tree)
    around = (Plain(ANYTHING),) if searches else ()
    try:
        return builder.join((*around, tree, *around), None, lambda last: EMPTY)
    except RecursionError:
        raise UnsupportedConstraint(
            "the regex has too many anchors, word boundaries or look-arounds to be compiled"
        ) from None


class _Builder:
    """Builds one pattern; `lasts` are the classes of characters that its conditions tell apart."""

    def __init__(self, text: str, tree: Pattern) -> None:
        self.text = text
        self.lasts: list[Ranges] = [ranges.EVERY]
        for look in _lookbehinds(tree):
            condition = _last_character(look.body)
            if condition is not None:
                self.lasts = _part(self.lasts, condition[0])

    def join(self, items: tuple[Pattern, ...], last: _Last, rest: _Rest) -> Regex:
        """Items one after the other."""
        items = _flattened(items)
        tails: dict[int, _Rest] = {len(items): rest}

        def tail(start: int) -> _Rest:
            """What begins with the item at `start`; each found once, or long patterns take ages."""
            if start not in tails:
                tails[start] = _remembered(lambda last: self.stretch(items, start, last, tail))
            return tails[start]

        if len(items) > _LONG:  # from the end, to keep the recursion shallow
            for start in reversed(range(len(items))):
                for other in (None, *self.lasts):
                    with suppress(UnsupportedConstraint):  # what is needed is refused below
                        tail(start)(other)
        return tail(0)(last)

    def stretch(
        self,
        items: tuple[Pattern, ...],
        start: int,
        last: _Last,
        tail: Callable[[int], _Rest],
    ) -> Regex:
        """The run of plain items from `start` on, taken as one, then the item behind it."""
        run: Regex = EMPTY
        for position in range(start, len(items)):
            item = items[position]
            if isinstance(item, Plain):
                run = sequence(run, item.regex)
            elif isinstance(item, Look) and (seen := self.seen_by(item, run, last)) is not None:
                run = both(run, complement(seen) if item.is_negative else seen)
            else:
                after = tail(position + 1)
                return self.run(run, last, _remembered(partial(self.one, item, rest=after)))
        return self.run(run, last, tail(len(items)))

    def run(self, regex: Regex, last: _Last, rest: _Rest) -> Regex:
        """A plain part, parted by its last character where what follows depends on it."""
        if regex is EMPTY:
            return rest(last)
        endings: dict[Regex, Ranges] = {}
        for part in self.lasts:
            following = rest(part)
            endings[following] = ranges.union(endings.get(following, ()), part)
        branches = [rest(last)] if regex.is_nullable else []
        if len(endings) == 1 and all(branch in endings for branch in branches):
            return sequence(regex, *endings)
        for following, part in endings.items():
            branches.append(sequence(ending_in(regex, part), following))
        return alternatives(*branches)

    def one(self, item: Pattern, last: _Last, *, rest: _Rest) -> Regex:
        """One item and what follows it."""
        match item:
            case Plain(regex):
                return self.run(regex, last, rest)
            case Join(items):
                return self.join(items, last, rest)
            case Choice(branches):
                return alternatives(*(self.one(branch, last, rest=rest) for branch in branches))
            case Loop():
                return self.loop(item, last, rest)
            case Look():
                return self.look(item, last, rest)
            case Refused(what, position):
                raise self.unsupported(what, position)

    def loop(self, item: Loop, last: _Last, rest: _Rest) -> Regex:
        """Repetition: written out where it is short, else as far as its conditions allow."""
        if item.maximum is not None and item.maximum <= _MAX_UNROLLED:
            return self.unrolled(item, item.maximum, last, rest)
        ways = self.anchored_loop(item, last, rest) or self.tempered_loop(item, last, rest)
        if ways is None:
            raise self.unsupported(
                "an anchor, word boundary or look-around inside a repetition", item.position
            )
        return alternatives(*ways)

    def unrolled(self, item: Loop, maximum: int, last: _Last, rest: _Rest) -> Regex:
        following = rest
        for count in reversed(range(maximum)):
            following = _remembered(partial(self.round, item, count, rest, following))
        return following(last)

    def round(self, item: Loop, count: int, rest: _Rest, following: _Rest, last: _Last) -> Regex:
        """After `count` rounds: one more, or the end of the loop if there are enough."""
        once_more = self.one(item.item, last, rest=following)
        return alternatives(once_more, rest(last)) if count >= item.minimum else once_more

    def anchored_loop(self, item: Loop, last: _Last, rest: _Rest) -> list[Regex] | None:
        """Where only anchors stand inside: `^` may hold the first time, `$` the last."""
        looks = [node for node in walk(item.item) if isinstance(node, Look)]
        if not all(map(_is_anchor, looks)):
            return None

        def round_(at_start: bool, at_end: bool) -> Regex:
            """The item where the text may start before it, or end behind it."""
            tree = _without_anchors(item.item, at_start, at_end)
            return self.one(tree, None if at_start else ranges.EVERY, rest=lambda last: EMPTY)

        is_start = last is None
        inner, first = round_(False, False), round_(is_start, False)
        final, only = round_(False, True), round_(is_start, True)

        def at_end(last: _Last) -> Regex:
            return both(rest(last), EMPTY)

        def rounds(num_others: int, is_free: bool) -> Regex:
            """The rounds without anchors, beside others that as empty ones may make up for all."""
            fewest = 0 if is_free else max(item.minimum - num_others, 0)
            most = None if item.maximum is None else item.maximum - num_others
            return repeat(inner, fewest, most)

        free, free_at_end = first.is_nullable, final.is_nullable
        to_end = sequence(first, rounds(2, free or free_at_end), final)
        ways = [
            self.run(sequence(first, rounds(1, free)), last, rest),
            self.run(to_end, last, at_end),
        ]
        if item.minimum <= 1 or only.is_nullable:
            ways.append(self.run(only, last, at_end))
        return [rest(last), *ways] if item.minimum == 0 else ways

    def tempered_loop(self, item: Loop, last: _Last, rest: _Rest) -> list[Regex] | None:
        """`(?:(?!Y).)*` where what follows is of one length, so that it shows where the loop ends.

        No place before that end may then see a Y: no suffix longer than what follows.
        """
        if not isinstance(item.item, Join) or not isinstance(item.item.items[-1], Plain):
            return None
        *looks, body = item.item.items
        following = {rest(part) for part in (last, *self.lasts)}
        shortest, longest = length_bounds(next(iter(following)))
        if len(following) > 1 or shortest != longest:
            return None
        if not isinstance(body, Plain) or not isinstance(body.regex, Characters):
            return None
        whole = sequence(repeat(body.regex, item.minimum, item.maximum), *following)
        longer = repeat(ANY_CHARACTER, shortest + 1, None)
        for look in looks:
            if not isinstance(look, Look) or not look.is_ahead or any(_lookbehinds(look.body)):
                return None
            seen = self.one(look.body, last, rest=lambda last: ANYTHING)
            forbidden = seen if look.is_negative else complement(seen)
            whole = both(whole, complement(sequence(ANYTHING, both(forbidden, longer))))
        return [whole]

    def look(self, item: Look, last: _Last, rest: _Rest) -> Regex:
        if not item.is_ahead:
            condition = _last_character(item.body)
            if condition is None:
                raise self.unsupported("a lookbehind that looks this far", item.position)
            members, at_start = condition
            is_met = at_start if last is None else not ranges.subtract(last, members)
            return rest(last) if is_met != item.is_negative else NOTHING
        following = rest(last)
        if isinstance(item.body, Plain) and isinstance(item.body.regex, Characters):
            members = item.body.regex.ranges
            if not item.is_negative:
                return starting_with(following, members)
            others = starting_with(following, ranges.invert(members))
            return alternatives(EMPTY, others) if following.is_nullable else others
        seen = self.one(item.body, last, rest=lambda last: ANYTHING)
        return both(complement(seen) if item.is_negative else seen, following)

    def seen_by(self, item: Look, run: Regex, last: _Last) -> Regex | None:
        """What a lookbehind asks of the run before it; None where it must be asked otherwise."""
        if item.is_ahead or _last_character(item.body) is not None or _looks_ahead(item.body):
            return None
        if last is None:
            before = (Plain(ANYTHING), item.body)
            return self.join(before, None, lambda last: EMPTY)
        if not isinstance(item.body, Plain):
            return None
        longest = length_bounds(item.body.regex)[1]
        if longest is None or length_bounds(run)[0] < longest:
            return None
        return sequence(ANYTHING, item.body.regex)

    def unsupported(self, what: str, position: int) -> UnsupportedConstraint:
        line, column = place(self.text, position)
        return UnsupportedConstraint(
            f"{what} is not supported in a regex", line=line, column=column
        )


def ending_in(regex: Regex, members: Ranges) -> Regex:
    """The matches whose last character is one of these."""
    if members == ranges.EVERY and not regex.is_nullable:
        return regex
    match regex:
        case Empty():
            return NOTHING
        case Characters(own):
            return characters(ranges.intersect(own, members))
        case Sequence(first, rest):
            whole = sequence(first, ending_in(rest, members))
            return alternatives(whole, ending_in(first, members)) if rest.is_nullable else whole
        case Repeat(item, minimum, maximum):
            before = repeat(item, max(minimum - 1, 0), None if maximum is None else maximum - 1)
            return sequence(before, ending_in(item, members))
        case Alternatives(items):
            return alternatives(*(ending_in(item, members) for item in items))
        case _:
            return both(regex, sequence(ANYTHING, characters(members)))


def starting_with(regex: Regex, members: Ranges) -> Regex:
    """The matches whose first character is one of these."""
    if members == ranges.EVERY and not regex.is_nullable:
        return regex
    match regex:
        case Empty():
            return NOTHING
        case Characters(own):
            return characters(ranges.intersect(own, members))
        case Sequence(first, rest):
            whole = sequence(starting_with(first, members), rest)
            return alternatives(whole, starting_with(rest, members)) if first.is_nullable else whole
        case Repeat(item, minimum, maximum):
            after = repeat(item, max(minimum - 1, 0), None if maximum is None else maximum - 1)
            return sequence(starting_with(item, members), after)
        case Alternatives(items):
            return alternatives(*(starting_with(item, members) for item in items))
        case _:
            return both(regex, sequence(characters(members), ANYTHING))


def _remembered(rest: _Rest) -> _Rest:
    known: dict[_Last, Regex] = {}

    def look_up(last: _Last) -> Regex:
        if last not in known:
            known[last] = rest(last)
        return known[last]

    return look_up


def _flattened(items: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    return tuple(
        part for item in items for part in (item.items if isinstance(item, Join) else (item,))
    )


def _part(parts: list[Ranges], members: Ranges) -> list[Ranges]:
    halves = (f(part, members) for part in parts for f in (ranges.intersect, ranges.subtract))
    return [half for half in halves if half]


def _last_character(body: Pattern) -> tuple[Ranges, bool] | None:
    """A lookbehind as a condition on one character: which, and whether the start will do."""
    match body:
        case Plain(Characters(members)):
            return members, False
        case Look(inner, is_ahead=False, is_negative=is_negative):
            condition = _last_character(inner)
            if condition is None or not is_negative:
                return condition
            return ranges.invert(condition[0]), not condition[1]
        case Choice(branches):
            conditions = [_last_character(branch) for branch in branches]
            members, at_start = (), False
            for condition in conditions:
                if condition is None:
                    return None
                members = ranges.union(members, condition[0])
                at_start = at_start or condition[1]
            return members, at_start
        case _:
            return None


def _is_anchor(look: Look) -> bool:
    """Whether it is `^` or `$`: no character at all before it, or behind."""
    is_any = isinstance(look.body, Plain) and look.body.regex is ANY_CHARACTER
    return is_any and look.is_negative


def _without_anchors(tree: Pattern, at_start: bool, at_end: bool) -> Pattern:
    """The tree where `^` never holds unless `at_start`, and `$` never unless `at_end`."""
    match tree:
        case Look() if _is_anchor(tree):
            return tree if (at_end if tree.is_ahead else at_start) else Plain(NOTHING)
        case Join(items):
            return join(_without_anchors(item, at_start, at_end) for item in items)
        case Choice(branches):
            return choose([_without_anchors(branch, at_start, at_end) for branch in branches])
        case Loop(item, minimum, maximum, position):
            return loop(_without_anchors(item, at_start, at_end), minimum, maximum, position)
        case _:
            return tree


def _lookbehinds(tree: Pattern) -> Iterator[Look]:
    return (node for node in walk(tree) if isinstance(node, Look) and not node.is_ahead)


def _looks_ahead(tree: Pattern) -> bool:
    return any(isinstance(node, Look) and node.is_ahead for node in walk(tree))
