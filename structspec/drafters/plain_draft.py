"""What a class of the user's own gives as a draft: read, or refused by name.

All behind a drafter take a draft's lists as they are, for all requests at once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from structspec.engine.batch import Draft, DraftSource

_PRECISION = 1e-2  # of a distribution's sum, in any floating type


def plain_draft(given: object, num_requests: int, vocab_size: int) -> Draft:
    """The same draft in Python's own integers and float32.

    Raises TypeError or ValueError, which begin with what was given, where it is no draft of so many
    requests. Sources that do not say where each token is from are left out.
    """
    if not isinstance(given, Draft):
        raise TypeError(f"{given!r:.100} in place of a Draft")
    for name in ("token_ids", "probs", "is_forced", "num_certain"):
        if (length := len(getattr(given, name))) != num_requests:
            raise ValueError(f"{length} {name} for {num_requests} requests")
    token_ids = [_integers("token_ids", row) for row in given.token_ids]
    num_certain = _integers("num_certain", given.num_certain)
    is_forced = [[*map(bool, row)] for row in given.is_forced]
    (num_hopeful,) = _integers("num_hopeful", [given.num_hopeful])
    probs: list[Tensor | None] = []
    for ids, flags, count, q in zip(token_ids, is_forced, num_certain, given.probs, strict=True):
        if len(flags) != len(ids):
            raise ValueError(f"{len(flags)} is_forced for {len(ids)} tokens")
        if not 0 <= count <= len(ids):
            raise ValueError(f"num_certain={count} for {len(ids)} tokens")
        probs.append(None if q is None else _probs(q, (len(ids) - count, vocab_size)))
    sources = given.sources if _are_of(given.sources, token_ids) else ()
    faults = [fault for fault in given.faults if isinstance(fault, Exception)]
    return Draft(token_ids, probs, is_forced, num_certain, max(0, num_hopeful), sources, faults)


def check_distributions(draft: Draft) -> None:
    """ValueError where a guess cannot have been drawn from its q; waits for the q's device."""
    are_sound = [
        _are_sound(q, guesses)
        for q, guesses in zip(draft.probs, draft.guesses, strict=True)
        if q is not None
    ]
    if are_sound and not bool(torch.stack(are_sound).all()):
        raise ValueError("probs that are no distributions its tokens can have been drawn from")


def _are_sound(q: Tensor, guesses: Sequence[int]) -> Tensor:
    drawn = q[torch.arange(len(guesses)), torch.tensor(guesses, dtype=torch.int64)]
    # a comparison with NaN is False
    return ((q.sum(1) - 1).abs() < _PRECISION).all() & (q >= 0).all() & (drawn > 0).all()


def _integers(name: str, values: Iterable[object]) -> list[int]:
    try:
        return [int(operator.index(value)) for value in values]  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} that are no list of integers: {values!r:.100}") from None


def _probs(q: object, shape: tuple[int, int]) -> Tensor:
    if not isinstance(q, Tensor) or q.shape != shape:
        given = tuple(q.shape) if isinstance(q, Tensor) else type(q).__name__
        raise ValueError(f"probs of the shape {given}, and guesses need {shape}")
    return q.float()


def _are_of(sources: Sequence[Sequence[DraftSource]], token_ids: Sequence[Sequence[int]]) -> bool:
    return [
        sum(one.num_tokens for one in of_request if isinstance(one, DraftSource))
        for of_request in sources
    ] == [*map(len, token_ids)]
