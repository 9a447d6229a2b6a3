"""Calls of tools while they are written: names as soon as they are there, arguments as they grow.

The grammar has fixed what may stand where: no text before a call holds the text that begins one,
and JSON is followed bracket by bracket. So what stands in a string, marks of calls among it,
misleads nobody. Text that might still become a beginning is held back. Where an answer's schema
lets it begin as a call does, nobody knows before the end, and so nothing is told before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from structspec.call_likeness import may_look_like_a_call
from structspec.constraint import Tools
from structspec.errors import OutputInvalid
from structspec.grammars.envelopes import ENVELOPES
from structspec.grammars.tools import tools_of, written_name
from structspec.tool_calls import validate_tool_calls


@dataclass(frozen=True, slots=True)
class AnswerText:
    """More of what is said beside calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """A tool is called; calls are counted from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsText:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


Event = AnswerText | CallBegins | ArgumentsText


class CallReader:
    """Turns pieces of a text that a `Tools` constraint allows into events; used by one thread.

    Special tokens are part of the text, spelled by name. What the events hold is what
    `finished_calls` finds in the whole.
    """

    def __init__(self, tools: Tools) -> None:
        fixed = ENVELOPES[tools.envelope]
        names = [tool.name for tool in tools_of(tools)] if tools.choice != "none" else []
        self._calls = {
            f"{fixed.before_name}{written_name(name, fixed)}{fixed.before_arguments}": name
            for name in names
        }
        self._opening = fixed.opening
        self._after, self._separator = fixed.after_arguments, fixed.separator
        self._before_answer = fixed.before_answer
        # where calls and an answer are alternatives, all is decided by the first characters
        self._must_begin = tools.choice == "auto" and tools.response is not None
        self._must_begin |= tools.choice not in ("auto", "none") or bool(self._before_answer)
        self._tools = tools
        self._is_undecided = may_look_like_a_call(tools)
        self._text = ""  # not told yet
        self._is_answer = False  # to its end
        self._num_calls = 0
        self._end: _JsonEnd | None = None  # of the arguments that are being written

    def feed(self, text: str) -> Iterator[Event]:
        """What a new piece of text says."""
        self._text += text
        while not self._is_undecided:
            if self._is_answer:
                yield from self._answer(len(self._text))
                return
            if self._end is not None:
                yield from self._arguments(self._end)
                if self._end is not None:
                    return
            if not (yield from self._begin()):
                return

    def finish(self) -> Iterator[Event]:
        """What was held back, once the text has come to its end."""
        if self._is_undecided:
            yield from self._decide()
        elif self._num_calls == 0:
            yield from self._answer(len(self._text))

    def _decide(self) -> Iterator[Event]:
        """Tell a whole text that may be both: calls if they are valid ones, else an answer."""
        try:
            said = validate_tool_calls(self._text, self._tools)
        except OutputInvalid:  # cut short, as a rule
            said = self._text
        if isinstance(said, str):
            yield from self._answer(len(self._text))
            return
        for index, call in enumerate(said):
            yield CallBegins(index, call.name)
            yield ArgumentsText(index, call.text)

    def _begin(self) -> Generator[Event, None, bool]:
        """Look for the next call; returns whether one was found, or that there will be none."""
        lead = self._opening if self._num_calls == 0 else self._after + (self._separator or "")
        beginnings = {lead + begin: name for begin, name in self._calls.items()}
        start, begin = self._find(beginnings)
        if begin is not None:
            yield from self._answer(start)
            self._text = self._text[len(begin) :]
            self._num_calls += 1
            self._end = _JsonEnd()
            yield CallBegins(self._num_calls - 1, beginnings[begin])
            return True
        if self._num_calls:
            return False
        if self._must_begin:
            if not any(one.startswith(self._text) for one in beginnings):
                self._is_answer = True
                return True
            return False
        yield from self._answer(len(self._text) - self._num_held(beginnings))
        return False

    def _find(self, beginnings: dict[str, str]) -> tuple[int, str | None]:
        found = (
            (self._text.find(one), one)
            for one in beginnings
            if not (self._must_begin or self._num_calls) or self._text.startswith(one)
        )
        return min((hit for hit in found if hit[0] >= 0), default=(0, None))

    def _num_held(self, beginnings: dict[str, str]) -> int:
        """How many characters at the end may be the start of a call."""
        longest = max(map(len, beginnings), default=0)
        for num in range(min(longest, len(self._text)), 0, -1):
            if any(one.startswith(self._text[-num:]) for one in beginnings):
                return num
        return 0

    def _answer(self, num_chars: int) -> Iterator[Event]:
        if self._before_answer:  # the marks around an answer are no part of it
            if len(self._text) < len(self._before_answer):
                return
            if self._text.startswith(self._before_answer):
                self._text = self._text[len(self._before_answer) :]
                num_chars -= len(self._before_answer)
            self._before_answer = ""
        text, self._text = self._text[:num_chars], self._text[num_chars:]
        if text:
            yield AnswerText(text)

    def _arguments(self, end: _JsonEnd) -> Iterator[Event]:
        num_chars = end.feed(self._text)
        text, self._text = self._text[:num_chars], self._text[num_chars:]
        if text:
            yield ArgumentsText(self._num_calls - 1, text)
        if end.is_reached:
            self._end = None


class _JsonEnd:
    """Finds the end of a JSON object that comes in pieces."""

    __slots__ = ("_depth", "_is_escaped", "_is_string", "is_reached")

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = self._is_escaped = self.is_reached = False

    def feed(self, text: str) -> int:
        """How many of these characters belong to it."""
        for place, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_string:
                self._is_escaped = character == "\\"
                self._is_string = character != '"'
            elif character == '"':
                self._is_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.is_reached = True
                    return place + 1
        return len(text)
