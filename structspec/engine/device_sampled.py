"""What a GPU has drawn, on its way to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from structspec.engine.batch import Sampled, SamplerOutput
from structspec.engine.logprobs import DeviceLogprobs

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DeviceSampled:
    """New tokens on their way to the host."""

    last_token_ids: Tensor
    arrived: Tensor  # pinned, a row per sampled request: runners-up, tokens, how many were accepted
    arrival: Callable[[], None]  # waits for the copy
    is_sampled: Sequence[bool]
    has_guesses: bool
    num_runners_up: int  # columns; 0: nobody asks for them
    asking: Sequence[int] | None = None  # rows whose runners-up are asked for; None: all
    logprobs: DeviceLogprobs | None = None  # fetched, and there with the rest

    def read(self) -> SamplerOutput:
        """The output, once it is there."""
        self.arrival()
        output = self._tokens()
        return output if self.logprobs is None else self.logprobs.added_to(output)

    def _tokens(self) -> SamplerOutput:
        num_sampled, n = len(self.arrived), self.num_runners_up
        if self.has_guesses:
            rows = self.arrived[:, n:].tolist()
            accepted = [row.pop() for row in rows]
            tokens = [row[: k + 1] for row, k in zip(rows, accepted, strict=True)]
        else:
            accepted, tokens = [0] * num_sampled, self.arrived[:, n : n + 1].tolist()
        runners_up = self._runners_up(n) if n else []
        if num_sampled == len(self.is_sampled):
            return SamplerOutput(tokens, accepted, runners_up)
        places = [i for i, sampled in enumerate(self.is_sampled) if sampled]
        size = len(self.is_sampled)
        return SamplerOutput(
            _spread(tokens, places, size, ()),
            _spread(accepted, places, size, 0),
            _spread(runners_up, places, size, ()) if n else (),
        )

    def _runners_up(self, n: int) -> list[Sequence[int]]:
        columns = self.arrived[:, :n]
        if self.asking is None:
            return [*map(_known, columns.tolist())]
        known = map(_known, columns[self.asking].tolist())
        return _spread([*known], self.asking, len(columns), ())


@dataclass(frozen=True, slots=True)
class GeneralSampled:
    """What RejectionSampler drew, its last tokens where the forward pass looks for them."""

    last_token_ids: Tensor
    ready: Sampled

    def read(self) -> SamplerOutput:
        """The output."""
        return self.ready.read()


def _spread(values: Sequence[_T], places: Sequence[int], size: int, other: _T) -> list[_T]:
    """So many values, these at their places."""
    spread = [other] * size
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return spread


def _known(ids: list[int]) -> Sequence[int]:
    """Without the -1 behind the last."""
    return ids if ids[-1] >= 0 else [token_id for token_id in ids if token_id >= 0]
