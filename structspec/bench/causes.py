"""Grouping what is not right by its cause: messages with their particulars left out."""

from __future__ import annotations

import re
from collections import Counter

from structspec.bench.outcome import Verdict
from structspec.bench.score import FINE, Judged

_POINTER = re.compile(r"#(/[^\s:]*)?: ?")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile(r"\d+")
_MAX_LENGTH = 100


def count_causes(judged: Judged) -> Counter[tuple[Verdict, str]]:
    """How often each cause of each verdict occurs; one for every case that is not right."""
    return Counter(
        (outcome.verdict, simplify(outcome.message or outcome.offences[0].reason))
        for _, outcome in judged
        if outcome.verdict not in FINE
    )


def simplify(message: str) -> str:
    """The first line without pointers, quoted text and numbers."""
    text = _POINTER.sub("", message.strip().partition("\n")[0])
    text = _NUMBER.sub("N", _QUOTED.sub("…", text))
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"
