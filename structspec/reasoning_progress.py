"""One request's tokens told apart: which are reasoning, and what of the text is the answer."""

from __future__ import annotations

from structspec.output_text import OutputText
from structspec.reasoning_boundary import (
    ANSWER,
    ANSWERED,
    BEFORE,
    BREAK,
    ENDED,
    REASONING,
    Boundary,
    State,
)
from structspec.reasoning_symbols import Symbols


class ReasoningProgress:
    """Follows the tokens that stand; the text of reasoning grows without its markers.

    Where nothing masks its tokens the answer may begin inside one.
    """

    __slots__ = (
        "_boundary",
        "_initial",
        "_open",
        "_prefix",
        "_state",
        "num_tokens",
        "text",
    )

    def __init__(self, boundary: Boundary, initial: State) -> None:
        self._boundary = boundary
        self._initial = self._state = initial
        self._open: list[tuple[int, bytes]] = []  # what may be the start marker, or the answer
        self._prefix = _Prefix(boundary)
        self.text = OutputText()
        self.num_tokens = 0  # of reasoning, those of its markers among them

    def fresh(self) -> ReasoningProgress:
        """That of another attempt at the same."""
        return ReasoningProgress(self._boundary, self._initial)

    @property
    def num_before(self) -> int:
        """How many tokens stand before the answer."""
        return self.num_tokens + self._prefix.num_tokens

    @property
    def is_over(self) -> bool:
        """Whether the answer has begun, or may begin with the next token."""
        return self._state.phase in (BREAK, ANSWER)

    @property
    def has_begun(self) -> bool:
        """Whether there was any reasoning, in the output or open in the prompt."""
        return self.num_tokens > 0 or self._initial.phase == REASONING

    def take(self, token_id: int, data: bytes) -> bytes:
        """Move on by one token and its text; what of the text is now known to be the answer's."""
        phase, place = self._state
        if phase == ANSWER:
            return self._prefix.take(token_id, data)
        if phase == BREAK:
            is_break = token_id in self._boundary.break_ids
            self.num_tokens += is_break
            self._state = ENDED if is_break else ANSWERED
            return b"" if is_break else self._prefix.take(token_id, data)
        symbols = self._boundary.symbols_of(token_id)
        if phase == REASONING:
            return self._reason_on(place, symbols, data)
        rest = self._boundary.start[place:]
        self._open.append((token_id, data))
        if tuple(symbols[: len(rest)]) != rest[: len(symbols)]:
            return self.finish()
        if len(symbols) < len(rest):
            self._state = State(BEFORE, place + len(symbols))
            return b""
        self.num_tokens = len(self._open) - 1
        self._open.clear()
        return self._reason_on(0, symbols[len(rest) :], data[len(rest) :])

    def finish(self) -> bytes:
        """What was not the start marker after all, since something else or nothing came."""
        if self._state.phase == BEFORE:
            self._state = ANSWERED
        answer = b"".join(self._prefix.take(token_id, data) for token_id, data in self._open)
        self._open.clear()
        return answer

    def _reason_on(self, place: int, symbols: Symbols, data: bytes) -> bytes:
        boundary = self._boundary
        self.num_tokens += 1
        place, num_read = boundary.read_on(place, symbols)
        self.text.append(data[:num_read])
        num_held = boundary.num_bytes_of_end(place)
        if place < len(boundary.end):
            self._state = State(REASONING, place)
            self.text.num_held = num_held
            return b""
        self.text.num_held = 0
        self.text.drop(num_held)
        if num_read == len(symbols):
            self._state = boundary.after_end
            return b""
        self._state = ANSWERED
        rest = data[num_read:]
        num_breaks = len(rest) - len(rest.lstrip(b"\n"))
        return rest[min(num_breaks, boundary.line_breaks) :]


class _Prefix:
    """What stands before an answer that its family marks."""

    __slots__ = ("_boundary", "_held", "_num_held", "_place", "num_tokens")

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._place = 0  # how many of its symbols stand
        self._held = b""
        self._num_held = 0
        self.num_tokens = 0  # once it is whole

    def take(self, token_id: int, data: bytes) -> bytes:
        """Move on by one token; what of the text is the answer's."""
        rest = self._boundary.answer[self._place :]
        if not rest:
            return data
        symbols = self._boundary.symbols_of(token_id)
        if tuple(symbols[: len(rest)]) != rest[: len(symbols)]:  # it is another kind of answer
            held, self._held, self._place = self._held, b"", len(self._boundary.answer)
            return held + data
        self._num_held += 1
        self._place += len(symbols[: len(rest)])
        if len(symbols) < len(rest):
            self._held += data
            return b""
        self.num_tokens = self._num_held
        return data[len(rest) :] if len(symbols) > len(rest) else b""
