"""Reading a pattern's text into its tree, in ECMAScript's dialect or in Python's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.cfg import check_characters, place
from structspec.grammars.regexes import classes, pattern, ranges
from structspec.grammars.regexes.counts import REPEAT, counts, is_repeat
from structspec.grammars.regexes.pattern import (
    NO_TEXT,
    Join,
    Look,
    Pattern,
    Plain,
    Refused,
)
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.syntax import (
    characters,
    repeat,
)

# lenient: ECMAScript as people write it; rust: of terminals in a grammar, as far as automata ask
Dialect = Literal["ecma", "lenient", "python", "rust"]

_GROUP = re.compile(
    r"\((?:\?(?P<kind>:|<?[=!]|#|>|\(|\||P=|P>|&|R\)|P?<[^\d\W]\w*>|(?P<flags>-?[a-zA-Z][a-zA-Z-]*)(?P<end>[:)])))?"
)
_POSIX = re.compile(r"\[:(?P<not>\^?)(?P<name>\w+):\]")
_HEX = re.compile(
    r"x\{(?P<any>[0-9a-fA-F]+)\}|u\{(?P<braced>[0-9a-fA-F]+)\}|x(?P<two>[0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>[0-9a-fA-F]{8})"
)
_LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_PROPERTY = re.compile(r"([pP])(?:\{(\^?[^}]*)\}|([A-Za-z]))")
_REFERENCE = re.compile(r"\\(?:[1-9]\d*|k<\w+>)")
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_REFUSED_GROUPS = {
    ">": "an atomic group",
    "(": "a conditional group",
    "|": "a branch reset",
    "P=": "a back-reference",
    "P>": "a recursive group",
    "&": "a recursive group",
    "R)": "a recursive group",
}
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    dot_all: bool = False
    multiline: bool = False

    def changed(self, letters: str) -> _Flags:
        """With the flags before a `-` set and those behind it cleared."""
        names = {"i": "ignore_case", "s": "dot_all", "m": "multiline"}
        on, _, off = letters.partition("-")
        known = [(names[c], c in on) for c in on + off if c in names]
        return replace(self, **dict(known))


def read(text: str, dialect: Dialect) -> Pattern:
    """The tree of a pattern; GrammarError, with the place, where it is malformed.

    What an automaton cannot hold is Refused where ECMAScript has it (back-references), and raises
    UnsupportedConstraint where only other dialects do.
    """
    check_characters(text)
    reader = _Reader(text, dialect)
    tree = reader.choice(_Flags(), 0)
    if reader.position < len(text):
        raise reader.error("unbalanced parenthesis", reader.position)
    return tree


class _Reader:
    """One pass over a pattern by recursive descent."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text = text
        self.position = 0
        self.is_ecma = dialect in ("ecma", "lenient")
        self.is_rust = dialect == "rust"
        self.may_lack_least = dialect == "python"  # `{,3}` counts
        self.is_strict = dialect == "ecma"
        self.dialect: Dialect = dialect

    # -- the parts of a pattern

    def choice(self, flags: _Flags, depth: int) -> Pattern:
        """Branches, up to a closing bracket or the end; flags set inside hold from there on."""
        if depth > _MAX_DEPTH:
            raise self.unsupported(f"nesting beyond {_MAX_DEPTH} groups", self.position)
        branches: list[Pattern] = []
        items: list[Pattern] = []
        while self.position < len(self.text) and self.text[self.position] != ")":
            if self.take("|"):
                branches.append(pattern.join(items))
                items = []
            elif changed := self.flags(flags):
                flags = changed
            else:
                item = self.atom(flags, depth)
                items.append(self.repetition(item))
        branches.append(pattern.join(items))
        return pattern.choose(branches)

    def flags(self, flags: _Flags) -> _Flags | None:
        """The flags from here on, where `(?i)` or the like stands here."""
        match = _GROUP.match(self.text, self.position)
        if match is None or match["end"] != ")":
            return None
        if self.is_strict:
            raise self.error("flags without a group", self.position)
        self.check_flags(match["flags"])
        self.position = match.end()
        return flags.changed(match["flags"])

    def atom(self, flags: _Flags, depth: int) -> Pattern:
        start = self.position
        character = self.text[start]
        if character == "(":
            return self.group(flags, depth)
        if character == "[":
            return self.one_of(self.character_class(flags))
        if character == "\\":
            return self.escape(flags)
        if is_repeat(REPEAT.match(self.text, start), not self.may_lack_least):
            raise self.error("nothing to repeat", start)
        if character == "{" and self.is_rust:
            raise self.error("a bracket that counts nothing", start)
        self.position += 1
        if character == "^":
            if flags.multiline:
                return pattern.not_last(characters(ranges.invert(self.line_ends)), start)
            return pattern.start(start)
        if character == "$":
            return self.dollar(flags, start)
        if character == ".":
            return self.one_of(ranges.EVERY if flags.dot_all else ranges.invert(self.line_ends))
        return self.one_of(self.cased(ranges.of(character), flags))

    def group(self, flags: _Flags, depth: int) -> Pattern:
        start = self.position
        match = _GROUP.match(self.text, start)
        assert match is not None
        kind = match["kind"] or ""
        is_unknown = not kind and self.text.startswith("(?", start)
        if is_unknown or (self.is_strict and kind.startswith(("P<", "#"))):
            raise self.error("an unknown kind of group", start)
        if kind in _REFUSED_GROUPS:
            raise self.unsupported(_REFUSED_GROUPS[kind], start)
        if kind == "#":
            return self.comment(start)
        self.position = match.end()
        if match["flags"]:
            self.check_flags(match["flags"])
            flags = flags.changed(match["flags"])
        body = self.choice(flags, depth + 1)
        if not self.take(")"):
            raise self.error("a group is not closed", self.position)
        if kind.lstrip("<") in ("=", "!"):
            return Look(body, not kind.startswith("<"), kind.endswith("!"), start)
        return body

    def comment(self, start: int) -> Pattern:
        end = self.text.find(")", start)
        if end < 0:
            raise self.error("a comment is not closed", start)
        self.position = end + 1
        return NO_TEXT

    def check_flags(self, letters: str) -> None:
        unknown = set(letters) - set("ismu-" if self.is_ecma else "aismu-")
        if unknown or letters.count("-") > 1:
            raise self.unsupported(f"the flag(s) {letters!r}", self.position)

    def repetition(self, item: Pattern) -> Pattern:
        match = REPEAT.match(self.text, self.position)
        if not is_repeat(match, not self.may_lack_least):
            return item
        assert match is not None
        position = self.position
        if isinstance(item, Look):
            raise self.error("nothing to repeat: an assertion takes no text", position)
        if match["kind"] == "+":
            if self.is_ecma:
                raise self.error("multiple repeat", position)
            raise self.unsupported("a possessive repetition", position)
        minimum, maximum = counts(match)
        if maximum is not None and maximum < minimum:
            raise self.error("min repeat greater than max repeat", position + 1)
        self.position = match.end()
        if is_repeat(REPEAT.match(self.text, self.position), not self.may_lack_least):
            raise self.error("multiple repeat", self.position)
        return pattern.loop(item, minimum, maximum, position)

    def dollar(self, flags: _Flags, start: int) -> Pattern:
        if flags.multiline:
            return pattern.not_next(characters(ranges.invert(self.line_ends)), start)
        if self.is_ecma or self.is_rust:
            return pattern.end(start)
        # Python's also stands before a last line feed
        last_line_feed = Plain(repeat(characters(classes.NEWLINE), 0, 1))
        return Look(Join((last_line_feed, pattern.end(start))), True, False, start)

    @property
    def line_ends(self) -> Ranges:
        return classes.ECMA_LINE_ENDS if self.is_ecma else classes.NEWLINE

    # -- escapes

    def escape(self, flags: _Flags) -> Pattern:
        start = self.position
        kind = self.text[start + 1 : start + 2]
        if not kind:
            raise self.error("the pattern ends with a backslash", start)
        if kind in "bB":
            self.position += 2
            word = characters(self.cased(classes.named_set("w", self.dialect), flags))
            return pattern.boundary(word, kind == "B", start)
        if kind in "AZz" and not self.is_ecma:
            self.position += 2
            return pattern.start(start) if kind == "A" else pattern.end(start)
        if reference := _REFERENCE.match(self.text, start):
            self.position = reference.end()
            return Refused("a back-reference", start)
        if kind in "<>" and self.is_rust:
            raise self.unsupported("the edge of a word", start)
        return self.one_of(self.escaped_class(flags))

    def escaped_class(self, flags: _Flags) -> Ranges:
        r"""The characters of an escape that is no assertion: `\d`, `\p{L}`, `\x41`."""
        start = self.position
        kind = self.text[start + 1 : start + 2]
        if kind and kind in "dDwWsS":
            self.position += 2
            named = classes.named_set(kind.lower(), self.dialect)
            found = self.cased(named, flags) if kind in "wW" else named
            return ranges.invert(found) if kind.isupper() else found
        if match := _PROPERTY.match(self.text, start + 1):
            return self.property(match, flags)
        return self.cased(ranges.of(chr(self.code_point())), flags)

    def property(self, match: re.Match[str], flags: _Flags) -> Ranges:
        name = match[2] if match[2] is not None else match[3]
        is_inverted = (match[1] == "P") != name.startswith("^")
        found = classes.unicode_property(name.lstrip("^"))
        if found is None:
            raise self.unsupported(f"the character property {name!r}", self.position)
        self.position = match.end()
        found = self.cased(found, flags)
        return ranges.invert(found) if is_inverted else found

    def code_point(self) -> int:
        """The character that an escape stands for."""
        start = self.position
        if match := _HEX.match(self.text, start + 1):
            return self.numbered(match)
        kind = self.text[start + 1 : start + 2]
        if not kind:
            raise self.error("unterminated escape", start)
        letter = self.text[start + 2 : start + 3]
        if self.is_ecma and kind == "c" and letter.isascii() and letter.isalpha():
            self.position += 3
            return ord(letter) % 32
        self.position += 2
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        if kind == "0":
            return 0
        if kind == "a" and not self.is_ecma:
            return 7
        if kind.isascii() and kind.isalnum():
            raise self.error(f"bad escape \\{kind}", start)
        return ord(kind)

    def numbered(self, match: re.Match[str]) -> int:
        start = self.position
        if (match["any"] and self.is_ecma) or (match["eight"] and self.is_ecma):
            raise self.error(f"bad escape \\{match[0]}", start)
        self.position = match.end()
        found = int(next(digits for digits in match.groups() if digits), 16)
        low = _LOW_HALF.match(self.text, self.position)
        if match["four"] and 0xD800 <= found < 0xDC00 and low:
            self.position = low.end()
            return 0x10000 + ((found - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if 0xD800 <= found <= 0xDFFF or found > ranges.MAX_CODE_POINT:
            raise self.error(f"\\{match[0]} is no character", start)
        return found

    # -- character classes

    def character_class(self, flags: _Flags) -> Ranges:
        start = self.position
        self.position += 1
        is_inverted = self.take("^")
        found: list[tuple[int, int]] = []
        is_first = not self.is_ecma  # Python takes a bracket that comes first as itself
        while True:
            if self.position >= len(self.text):
                raise self.error("unterminated character set", start)
            if self.text[self.position] == "]" and not is_first:
                self.position += 1
                break
            is_first = False
            self.check_rust_set(start)
            found += self.class_item(flags, start)
        members = self.cased(ranges.normalise(found), flags)
        return ranges.invert(members) if is_inverted else members

    def class_item(self, flags: _Flags, class_start: int) -> Ranges:
        """One member, one range or one set inside a class."""
        start = self.position
        low = self.class_member(flags)
        rest = self.text[self.position : self.position + 2]
        if rest[:1] != "-" or rest[1:] in ("]", ""):
            return low
        if ranges.size(low) != 1:
            return low  # the dash behind a set is itself, and read next
        self.position += 1
        high = self.class_member(flags)
        if ranges.size(high) != 1:
            return ranges.normalise((*low, *ranges.of("-"), *high))
        if low[0][0] > high[0][0]:
            raise self.error("bad character range", start)
        return ((low[0][0], high[0][0]),)

    def class_member(self, flags: _Flags) -> Ranges:
        posix = _POSIX.match(self.text, self.position)
        if posix and posix["name"] in classes.POSIX:
            return self.posix_class(posix, flags)
        if self.position >= len(self.text):
            raise self.error("unterminated character set", self.position)
        if self.text[self.position] != "\\":
            self.position += 1
            return ranges.of(self.text[self.position - 1])
        if self.text.startswith(r"\b", self.position):
            self.position += 2
            return ranges.of("\b")
        return self.escaped_class(replace(flags, ignore_case=False))

    def check_rust_set(self, class_start: int) -> None:
        """Rust has sets in sets, which are not read here."""
        rest = self.text[self.position : self.position + 2]
        is_nested = rest[:1] == "[" and not _POSIX.match(self.text, self.position)
        if self.is_rust and (is_nested or rest in ("&&", "--", "~~")):
            raise self.unsupported("a set made of sets", class_start)

    def posix_class(self, match: re.Match[str], flags: _Flags) -> Ranges:
        """Elsewhere `[[:alpha:]` is a set of `[`, `:` and letters, which nobody means."""
        if not self.is_rust:
            raise self.error(
                f"POSIX classes as {match[0]} are not part of this dialect;"
                r" write ranges as A-Za-z, or \d, \w or \s",
                self.position,
            )
        self.position = match.end()
        members = self.cased(classes.POSIX[match["name"]], flags)
        return ranges.invert(members) if match["not"] else members

    # -- small things

    def cased(self, members: Ranges, flags: _Flags) -> Ranges:
        return classes.fold(members) if flags.ignore_case else members

    def one_of(self, members: Ranges) -> Pattern:
        return Plain(characters(members))

    def take(self, character: str) -> bool:
        is_here = self.text.startswith(character, self.position)
        self.position += is_here
        return is_here

    def error(self, message: str, position: int) -> GrammarError:
        line, column = place(self.text, position)
        return GrammarError(message, line=line, column=column)

    def unsupported(self, what: str, position: int) -> GrammarError:
        line, column = place(self.text, position)
        return UnsupportedConstraint(
            f"{what} is not supported in a regex", line=line, column=column
        )
