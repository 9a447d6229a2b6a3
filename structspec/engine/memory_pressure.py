"""What becomes of a step for which the device's memory did not suffice, and of those after it."""

from __future__ import annotations

_NUM_STEPS_TO_GROW = 128  # that bring tokens, before larger ones are tried again
_MAX_FAILURES = 16  # without a token in between: more than it takes to halve any budget to 1


class MemoryPressure:
    """How many tokens a step may have, on a device whose memory may run out.

    a step runs out                  its requests are preempted; steps get half the tokens
    a second time in a row, alone    the request is given up: it does not fit by itself
    16 times without a token, alone  the same: it fits only until it is sampled
    many steps bring tokens          steps get twice the tokens, up to what is configured

    Used by the engine's thread.
    """

    def __init__(self, max_num_tokens: int) -> None:
        self._max_num_tokens = max_num_tokens
        self._num_tokens = max_num_tokens
        self._num_alone = 0  # failures in a row of steps with one request
        self._num_failures = 0  # since a step brought tokens
        self._num_good_steps = 0  # that brought tokens since the last failure or growth

    @property
    def num_tokens(self) -> int:
        """The token budget of the next step, drafts included; at least 1."""
        return self._num_tokens

    def ran_out(self, num_requests: int) -> bool:
        """Note a failed step of so many requests; True where they, one, are to be given up.

        Else they are to be preempted, to be computed again within the smaller budget.
        """
        self._num_tokens = max(1, self._num_tokens // 2)
        self._num_good_steps = 0
        self._num_failures += 1
        self._num_alone = self._num_alone + 1 if num_requests == 1 else 0
        if self._num_alone == 0 or (self._num_alone < 2 and self._num_failures < _MAX_FAILURES):
            return False
        self._num_alone = self._num_failures = 0
        return True

    def went_well(self, *, has_brought_tokens: bool = True) -> None:
        """Note a step that had room; one that only computes a part of a prompt brings no tokens."""
        self._num_alone = 0
        if not has_brought_tokens:
            return
        self._num_failures = 0
        if self._num_tokens == self._max_num_tokens:
            return
        self._num_good_steps += 1
        if self._num_good_steps == _NUM_STEPS_TO_GROW:
            self._num_tokens = min(2 * self._num_tokens, self._max_num_tokens)
            self._num_good_steps = 0
