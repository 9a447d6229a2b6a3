"""Filling the rows of a request and its drafts with nothing but the laws of `Matcher`.

accept d0, d1 ...   then row r+2, roll back d1, row r+1, roll back d0, row r
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from structspec.grammars.base import Bitmask, DeadEnd, FillJob, Look, Matcher, Move, Seen


def fill_job(job: FillJob, bitmask: Bitmask) -> int:
    """Fill one job's rows and say how many of its drafts the grammar takes; state unchanged.

    Rows are filled from the last to the first, on the way back: a library that keeps a mask for
    the next time (llguidance) then keeps one of the text itself, not of drafts. What fails behind a
    draft is no fault of the text's: nobody has gone there yet. A draft without a row behind it is
    not taken, but at a dead end, whose row is filled.
    """
    matcher, draft_token_ids, num_ahead = job.matcher, job.draft_token_ids, 0
    try:
        with suppress(Exception):
            while num_ahead < len(draft_token_ids) and matcher.accept(draft_token_ids[num_ahead]):
                num_ahead += 1
        num_valid = num_ahead
        while num_ahead:
            if not _has_filled(matcher, bitmask, job.first_row + num_ahead):
                num_valid = num_ahead - 1
            matcher.rollback(1)
            num_ahead -= 1
        matcher.fill(bitmask, job.first_row)
    except BaseException:
        matcher.rollback(num_ahead)
        raise
    return num_valid


def _has_filled(matcher: Matcher, bitmask: Bitmask, row: int) -> bool:
    """Fill the row if that can be done; also that of a dead end, which holds stop tokens."""
    try:
        matcher.fill(bitmask, row)
    except Exception as error:
        return isinstance(error, DeadEnd)
    return True


def take_each(moves: Sequence[Move]) -> list[Exception | None]:
    """Move matchers one by one, as far as they go, and say what went wrong with each."""
    found: list[Exception | None] = []
    for (_, token_ids), taken in zip(moves, take_allowed(moves), strict=True):
        if isinstance(taken, Exception):
            found.append(taken)
        elif taken < len(token_ids):
            found.append(AssertionError(f"token {token_ids[taken]} was written but is forbidden"))
        else:
            found.append(None)
    return found


def take_allowed(moves: Sequence[Move]) -> list[int | Exception]:
    """Move matchers one by one, each up to the first token that its grammar refuses.

    Says how many each has taken, or what went wrong with it.
    """
    return [count_taken(matcher, token_ids) for matcher, token_ids in moves]


def count_taken(matcher: Matcher, token_ids: Sequence[int]) -> int | Exception:
    """Move one matcher as far as its grammar takes these tokens; how many those are.

    Where it fails it is left where it was.
    """
    num_taken = 0
    try:
        while num_taken < len(token_ids) and matcher.accept(token_ids[num_taken]):
            num_taken += 1
    except Exception as error:
        with suppress(Exception):  # the first says more
            matcher.rollback(num_taken)
        return error
    return num_taken


def take_first_allowed(moves: Sequence[Move]) -> list[int | Exception]:
    """Move matchers one by one, each by the first of its tokens that the grammar takes.

    Says which it was, len(token_ids) for none of them, or what went wrong with the matcher.
    """
    return [first_taken(matcher, token_ids) for matcher, token_ids in moves]


def first_taken(matcher: Matcher, token_ids: Sequence[int]) -> int | Exception:
    """Move one matcher by the first of these tokens that its grammar takes; which it was."""
    try:
        return next((i for i, t in enumerate(token_ids) if matcher.accept(t)), len(token_ids))
    except Exception as error:
        return error


def look_each(looks: Sequence[Look]) -> list[Seen | Exception]:
    """Look ahead of matchers one by one: what each takes of its guesses, what is certain behind."""
    return [look_beyond(look) for look in looks]


def look_beyond(look: Look) -> Seen | Exception:
    """What one matcher takes of its guesses, and what is certain behind; it is left as it was."""
    matcher, guesses, limit = look
    num_taken = 0
    try:
        try:
            while num_taken < min(len(guesses), limit) and matcher.accept(guesses[num_taken]):
                num_taken += 1
            return Seen(num_taken, matcher.forced_tokens(limit - num_taken))
        finally:  # also where it failed: it may be well but for what was asked
            matcher.rollback(num_taken)
    except Exception as error:
        return error


def taken_ahead(matcher: Matcher, token_ids: Iterable[int]) -> list[int]:
    """These tokens up to the first that the matcher refuses; it is left as it was."""
    taken: list[int] = []
    try:
        for token_id in token_ids:
            if not matcher.accept(token_id):
                break
            taken.append(token_id)
    finally:  # also where it fails: it may be well but for what was asked
        matcher.rollback(len(taken))
    return taken


def fill_stop_row(bitmask: Bitmask, row: int, stop_token_ids: tuple[int, ...]) -> None:
    """Allow the stop tokens and nothing else."""
    bitmask[row] = 0
    words = bitmask[row].view("uint32")
    for token_id in stop_token_ids:
        words[token_id // 32] |= 1 << (token_id % 32)


def clear_tail(bitmask: Bitmask, row: int, vocab_size: int) -> None:
    """Clear the bits of the last word that stand for no token."""
    if vocab_size % 32:
        bitmask[row, -1] &= (1 << (vocab_size % 32)) - 1


def is_allowed(bitmask: Bitmask, row: int, token_id: int) -> bool:
    """Whether a filled row allows this token; ids outside the row are not allowed."""
    if not 0 <= token_id < bitmask.shape[1] * 32:
        return False
    return bool(bitmask.item(row, token_id // 32) >> token_id % 32 & 1)


def allowed_tokens(bitmask: Bitmask, row: int) -> Iterator[int]:
    """The tokens that a filled row allows, from the lowest on; cheap for who takes the first."""
    for index in bitmask[row].nonzero()[0]:
        word = int(bitmask[row, index])
        yield from (32 * int(index) + bit for bit in range(32) if word >> bit & 1)
