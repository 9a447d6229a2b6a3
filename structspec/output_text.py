"""One request's output as text: whole UTF-8 characters, cut at the first stop string."""

from __future__ import annotations

from collections.abc import Sequence


class OutputText:
    """Grows by tokens' bytes; hands out text that can no longer change.

    A character split over tokens is held back until it is whole, and so is text that may turn out
    to be the start of a stop string, or is to be `drop`ped. Bytes that are not UTF-8 become U+FFFD.
    """

    __slots__ = ("_data", "_num_taken", "_stops", "is_stopped", "num_held", "stop_string")

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._data = bytearray()
        self._stops = [string.encode() for string in stop]
        self._num_taken = 0
        self.num_held = 0  # bytes at its end that may yet be dropped
        self.is_stopped = False
        self.stop_string: str | None = None

    def append(self, data: bytes, *, may_stop: bool = True) -> bool:
        """Add a token's bytes; True once a stop string is there, which cuts the text before it.

        One that is complete without `may_stop` is text like any other.
        """
        assert not self.is_stopped
        num_before = len(self._data)
        self._data += data
        if not (self._stops and may_stop):
            return False
        # A stop string may begin in earlier tokens, but not so early that it was already complete.
        starts = [max(0, num_before - len(stop) + 1) for stop in self._stops]
        found = [
            (self._data.find(stop, start), stop)
            for stop, start in zip(self._stops, starts, strict=True)
        ]
        # The one that is complete first, so that it does not matter how tokens chop the text.
        hits = [(position + len(stop), position, stop) for position, stop in found if position >= 0]
        if hits:
            _, position, stop = min(hits)
            del self._data[position:]
            self.is_stopped = True
            self.stop_string = stop.decode()
        return self.is_stopped

    def drop(self, num_bytes: int) -> None:
        """Take away so many bytes at the end, which have been held."""
        assert len(self._data) - num_bytes >= self._num_taken
        del self._data[len(self._data) - num_bytes :]

    def take(self) -> str:
        """The text that became certain since the last call."""
        end = self._num_certain()
        piece = bytes(self._data[self._num_taken : end])
        self._num_taken = end
        return piece.decode("utf-8", "replace")

    def take_rest(self) -> str:
        """All that is left, once nothing more will be appended."""
        piece = bytes(self._data[self._num_taken :])
        self._num_taken = len(self._data)
        return piece.decode("utf-8", "replace")

    @property
    def has_begun(self) -> bool:
        """Whether any of it has been handed out."""
        return self._num_taken > 0

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self._data.decode("utf-8", "replace")

    def _num_certain(self) -> int:
        if self.is_stopped:
            return len(self._data)
        held = max(map(self._num_overlap, self._stops)) if self._stops else self.num_held
        end = len(self._data) - held
        return max(self._num_taken, end - _num_incomplete(self._data[max(0, end - 3) : end]))

    def _num_overlap(self, stop: bytes) -> int:
        """How many bytes at the end of the text are the start of `stop`."""
        longest = min(len(stop) - 1, len(self._data) - self._num_taken)
        return next((n for n in range(longest, 0, -1) if self._data.endswith(stop[:n])), 0)


def _num_incomplete(tail: bytes | bytearray) -> int:
    """How many bytes at the end of `tail` (its last 3) begin a character that is not whole yet."""
    for num_bytes in range(1, len(tail) + 1):
        byte = tail[-num_bytes]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue  # a continuation byte: look further back for its lead
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return num_bytes if length > num_bytes else 0
    return 0
