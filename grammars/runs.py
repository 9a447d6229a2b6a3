"""Runs: the parts of a form that an automaton holds whole, as large as they can be made.

llguidance reads a text as lexemes, always the longest that may stand in a place, and never takes
one back. Inside one lexeme an automaton sees every way to read the text, so what is regular is
written as one: `[a-z]+` followed by `abc` is one run, not two.
"""

from __future__ import annotations

from itertools import groupby

from structspec.grammars.form import Either, Form, Repeat, Sequence, Text, is_regular


def group(form: Form) -> Form:
    """The same form with every regular stretch of it under one node."""
    if is_regular(form):
        return form
    match form:
        case Sequence():
            return _row([group(part) for part in form.parts], form.pointer)
        case Either():
            return _choice([group(part) for part in form.parts], form.pointer)
        case Repeat():
            return Repeat(group(form.part), form.minimum, form.maximum, form.pointer)
        case _:
            return form


def _row(parts: list[Form], pointer: str) -> Form:
    flat = [
        p for part in parts for p in (part.parts if isinstance(part, Sequence) else (part,))
    ]  # a nested row may end in what the next part continues
    result: list[Form] = []
    for regular, stretch in groupby(flat, is_regular):
        run = [part for part in stretch if part != Text("", part.pointer)]
        if not regular or len(run) == 1:
            result += run
        elif run:
            result.append(Sequence(tuple(run), run[0].pointer))
    return result[0] if len(result) == 1 else Sequence(tuple(result), pointer)


def _choice(parts: list[Form], pointer: str) -> Form:
    flat = [p for part in parts for p in (part.parts if isinstance(part, Either) else (part,))]
    regular = [part for part in flat if is_regular(part)]
    result = [part for part in flat if not is_regular(part)]
    if regular:
        run = regular[0] if len(regular) == 1 else Either(tuple(regular), regular[0].pointer)
        result.append(run)
    return result[0] if len(result) == 1 else Either(tuple(result), pointer)
