"""Reading calls of tools back out of a text that their grammar allowed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache

from structspec.constraint import Envelope, Tools
from structspec.grammars.envelopes import ENVELOPES, EnvelopeText
from structspec.grammars.json_ends import json_end
from structspec.grammars.tools import tools_of


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool in a text: what is called, with what, and where both begin.

    `arguments` is JSON text; `name_start` and `arguments_start` are offsets in the text.
    """

    name: str
    arguments: str
    name_start: int
    arguments_start: int


def finished_calls(text: str, tools: Tools) -> list[Call]:
    """The calls that a finished text of this set of tools makes; [] where it is an answer.

    Unlike `read_calls` it knows where calls may stand, so that no answer is taken for one that
    only quotes it. A union in which calls and answer are both JSON is read as calls where it may,
    of tools that there are.
    """
    fixed = ENVELOPES[tools.envelope]
    if tools.choice == "none" or (fixed.before_answer and text.startswith(fixed.before_answer)):
        return []
    is_union = tools.choice == "auto" and tools.response is not None
    if is_union and fixed.arguments_key is not None:
        calls = _only_objects(text, fixed)
        names = {tool.name for tool in tools_of(tools)}
        return calls if names.issuperset(call.name for call in calls) else []
    if is_union and not text.startswith(fixed.opening + fixed.before_name):
        return []
    return _read_fixed(text, fixed)


def _only_objects(text: str, fixed: EnvelopeText) -> list[Call]:
    """Calls that are JSON objects, where nothing but their separators is written beside them."""
    calls: list[Call] = []
    match = _beginning(fixed).match(text)
    while match is not None:
        end = json_end(text, match.end())
        close = end and re.compile(r"\s*\}").match(text, end)
        if not close:
            return []
        calls.append(_call(match, text[match.end() : end]))
        if close.end() == len(text):
            return calls
        separator = fixed.separator or ""
        if not text.startswith(separator, close.end()):
            return []
        match = _beginning(fixed).match(text, close.end() + len(separator))
    return []


def read_calls(text: str, envelope: Envelope) -> list[Call]:
    """The calls in a text that a `Tools` constraint allowed; [] where it is an answer.

    Markers are read by name. The last call may be cut short: what is not complete is left out.
    """
    fixed = ENVELOPES[envelope]
    if fixed.arguments_key is not None:
        return _read_objects(text, fixed)
    return _read_fixed(text, fixed)


def _read_fixed(text: str, fixed: EnvelopeText) -> list[Call]:
    """Calls in the texts of an envelope, whatever stands before them."""
    start = text.find(fixed.opening + fixed.before_name)
    position = start + len(fixed.opening)
    calls: list[Call] = []
    while start >= 0 and text.startswith(fixed.before_name, position):
        name_start = position + len(fixed.before_name)
        name_end = text.find(fixed.before_arguments, name_start)
        if name_end < 0:
            break
        arguments_start = name_end + len(fixed.before_arguments)
        end = json_end(text, arguments_start)
        if end is None:
            break
        arguments = text[arguments_start:end]
        name = text[name_start:name_end]
        calls.append(Call(name, arguments, name_start, arguments_start))
        position = end + len(fixed.after_arguments) + len(fixed.separator or "")
    return calls


def _read_objects(text: str, fixed: EnvelopeText) -> list[Call]:
    """Calls that are JSON objects, in whatever white space."""
    begin = _beginning(fixed)
    calls: list[Call] = []
    match = begin.search(text)
    while match is not None:
        end = json_end(text, match.end())
        if end is None:
            break
        calls.append(_call(match, text[match.end() : end]))
        close = re.compile(r"\s*\}" + re.escape(fixed.separator or "")).match(text, end)
        match = begin.match(text, close.end()) if close else None
    return calls


@cache
def _beginning(fixed: EnvelopeText) -> re.Pattern[str]:
    """Of a call that is an object, up to its arguments."""
    name = r'"((?:[^"\\]|\\.)+)"'
    return re.compile(rf'{{\s*"name"\s*:\s*{name}\s*,\s*"{fixed.arguments_key}"\s*:\s*')


def _call(beginning: re.Match[str], arguments: str) -> Call:
    name = json.loads(f'"{beginning[1]}"')
    return Call(name, arguments, beginning.start(1), beginning.end())
