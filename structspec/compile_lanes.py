"""Which constraints a thread may compile: those that a library cannot spend seconds on, unstopped.

A guess from the text alone. What looks heavy and is not takes half a second longer, the first time.
"""

from __future__ import annotations

import math
import re

from structspec.constraint import Constraint
from structspec.grammars.router import choose
from structspec.settings import BackendName

_IN_THREADS = ("llguidance",)
ONLY_IN_THREADS = ("lm-format-enforcer",)  # what it compiles to cannot be sent
# Rules that lead to each other a few thousand deep overflow the stack inside the library, which
# ends the process: better not this one.
_MAX_CHARACTERS = 16_384
_MAX_COPIES = 100_000  # `((a{100}){100}){10}`: a tenth of a second; a hundred times more: minutes
_PIECE = re.compile(r'["\n]')  # no regex goes on past these
_COUNT = re.compile(r"\{(\d+)?,?(\d+)?\}")
_IS_COUNTED = re.compile(r"\{,?\d")
_MULTIPLE = re.compile(r'"multipleOf": ([\d.]+)')


def is_quick(backend: BackendName, constraint: Constraint) -> bool:
    """Whether a thread is the place to compile it; raises GrammarError where it is wrong."""
    if backend in ONLY_IN_THREADS:
        return True
    texts = constraint.key
    if sum(map(len, texts)) > _MAX_CHARACTERS or any(map(_is_heavy, texts)):
        return False
    return choose(backend, constraint)[0] in _IN_THREADS


def _is_heavy(text: str) -> bool:
    """Whether counted repetitions inside each other, or one large remainder, add up to much."""
    divisors = [int(match[1].replace(".", "")) for match in _MULTIPLE.finditer(text)]
    pieces = _PIECE.split(text) if _IS_COUNTED.search(text) else []
    copies = [
        math.prod(max(int(low or 1), int(high or 1), 1) for low, high in _COUNT.findall(piece))
        for piece in pieces
        if "{" in piece
    ]
    return max((*divisors, *copies), default=0) > _MAX_COPIES
