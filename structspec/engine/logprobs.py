"""The logprobs of a step's tokens, from its logits before or after these are changed.

    raw         log softmax(logits)
    processed   log softmax(x / T) of what may be drawn; x: edited, masked, limited by filters

Where T is 0 processed ones are as at T = 1 without filters. Limits are found as filters find them,
and keep what is at least as likely as the token that was drawn: it was kept, whatever a rounding
says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from structspec.engine.batch import Batch, Draft, SamplerOutput, ScheduledRequest
from structspec.engine.filter_columns import filter_columns
from structspec.engine.staging import send_arrays
from structspec.kernels.sample_rows_filters import Filters, keep_reference
from structspec.request import SamplingParams
from structspec.token_logprob import TokenLogprob

_RAW = SamplingParams()

# what is told: `logprobs`, both kinds for `token_details`, `prompt_logprobs`
Kind = Literal["asked", "raw", "processed", "prompt"]


@dataclass(frozen=True, slots=True)
class _Share:
    """The rows of one request, one behind the other among those that are asked for."""

    index: int  # of the scheduled request
    num_rows: int
    num_top: int
    kind: Kind


@dataclass(slots=True)
class LogprobRows:
    """Which rows of a step's logits are asked for, and which token each is about.

    That is token `offset` of those that the `owner`th sampled request gets, or a known one.
    """

    shares: list[_Share] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)  # -1: it is drawn in this step
    params: list[SamplingParams | None] = field(default_factory=list)  # None: raw

    @property
    def processed(self) -> list[int]:
        """Which of them are of what is drawn from."""
        return [place for place, params in enumerate(self.params) if params is not None]

    def add_drawn(
        self, index: int, owner: int, first_row: int, num_rows: int, params: SamplingParams
    ) -> None:
        """The rows that a request's new tokens are drawn from, as often as they are asked for."""
        of_mode: dict[str, SamplingParams | None] = {"raw": None, "processed": params}
        wanted: list[tuple[Kind, int, SamplingParams | None]] = []
        if params.logprobs is not None:
            wanted.append(("asked", params.logprobs, of_mode[params.logprobs_mode]))
        if params.token_details is not None:
            wanted += [("raw", 0, None), ("processed", params.token_details, params)]
        for kind, num_top, mode in wanted:
            self.shares.append(_Share(index, num_rows, num_top, kind))
            self.rows += range(first_row, first_row + num_rows)
            self.owners += [owner] * num_rows
            self.offsets += range(num_rows)
            self.known += [-1] * num_rows
            self.params += [mode] * num_rows

    def add_prompt(self, index: int, first_row: int, scheduled: ScheduledRequest) -> None:
        """The rows behind tokens of a prompt, about those that follow them."""
        request, num_rows = scheduled.request, scheduled.num_prompt_rows
        assert request.params.prompt_logprobs is not None
        self.shares.append(_Share(index, num_rows, request.params.prompt_logprobs, "prompt"))
        self.rows += range(first_row, first_row + num_rows)
        self.owners += [0] * num_rows
        self.offsets += [0] * num_rows
        first = scheduled.first_position + 1
        self.known += request.prompt_token_ids[first : first + num_rows]
        self.params += [None] * num_rows


def find_logprob_rows(batch: Batch, draft: Draft) -> LogprobRows | None:
    """The rows of a step that anybody wants logprobs of; None: nobody does."""
    found = LogprobRows()
    row = owner = 0
    for index, (scheduled, guesses) in enumerate(zip(batch.requests, draft.guesses, strict=True)):
        if not scheduled.is_sampled:
            continue
        num_rows, params = 1 + len(guesses), scheduled.request.params
        if params.tells_logprobs:
            found.add_drawn(index, owner, row, num_rows, params)
        row += num_rows
        owner += 1
    for index, scheduled in enumerate(batch.requests):
        if scheduled.num_prompt_rows:
            found.add_prompt(index, row, scheduled)
            row += scheduled.num_prompt_rows
    return found if found.shares else None


class StepLogprobs:
    """The logprobs of one step in the making; on a GPU all work is only launched.

    Made of the logits as the model gave them, then told what is left of them, then the new tokens.
    """

    def __init__(self, wanted: LogprobRows, logits: Tensor) -> None:
        self._wanted = wanted
        names = ("rows", "owners", "offsets", "known", "processed")
        arrays = {name: np.array(getattr(wanted, name), np.int64) for name in names}
        self._places = send_arrays(arrays, logits.device)
        self._scores = logits[self._places["rows"]].float()
        self._has_processed = bool(wanted.processed)

    @property
    def processed_rows(self) -> Tensor | None:
        """The rows of logits that `process` wants [num_processed]; None: it is not to be called."""
        return self._places["rows"][self._places["processed"]] if self._has_processed else None

    def process(self, logits: Tensor) -> None:  # [num_processed, vocab_size]
        """Take these logits in place of the model's own, forbidden ones at -inf."""
        self._scores[self._places["processed"]] = logits.float()

    def of_tokens(self, token_ids: Tensor) -> DeviceLogprobs:
        """The result, of all new tokens [num_sampled, …] int64, padded with anything."""
        places = self._places
        if len(token_ids):
            offsets = places["offsets"].clamp(max=token_ids.shape[1] - 1)
            drawn = token_ids[places["owners"], offsets]
            own = torch.where(places["known"] >= 0, places["known"], drawn)
        else:
            own = places["known"]
        own = own.clamp(min=0)[:, None]  # behind the last new token of a request there is none
        logprobs = self._limited(own).log_softmax(-1)
        num_top = min(max(share.num_top for share in self._wanted.shares), logprobs.shape[1])
        top = logprobs.topk(num_top, dim=-1)
        return DeviceLogprobs(self._wanted.shares, own, logprobs.gather(1, own), *top)

    def _limited(self, own: Tensor) -> Tensor:
        """Scores at a temperature of 1, of what filters keep."""
        scores, params = self._scores, [one or _RAW for one in self._wanted.params]
        if not any(one.temperature > 0 for one in params):
            return scores
        columns = send_arrays(filter_columns(params), scores.device)
        temperature = columns.pop("temperature")
        if any(one.is_filtered for one in params):
            keep = keep_reference(scores, temperature, Filters(**columns))
            keep |= scores >= scores.gather(1, own)
            scores = scores.masked_fill(~keep, float("-inf"))
        best = scores.amax(-1, keepdim=True)  # so the best is 0, and no temperature overflows
        return (scores - best) / torch.where(temperature > 0, temperature, 1)[:, None]


@dataclass(frozen=True, slots=True)
class DeviceLogprobs:
    """A step's logprobs, where they were computed or on their way from there."""

    shares: Sequence[_Share]
    token_ids: Tensor  # [num_rows, 1] int64
    own: Tensor  # [num_rows, 1] float32
    top: Tensor  # [num_rows, num_top] float32
    top_ids: Tensor  # [num_rows, num_top] int64

    def fetched(self, *, is_awaited: bool) -> DeviceLogprobs:
        """The same on the host; unless `is_awaited` once the device has come so far."""
        tensors = (self.token_ids, self.own, self.top, self.top_ids)
        return DeviceLogprobs(
            self.shares, *(each.to("cpu", non_blocking=not is_awaited) for each in tensors)
        )

    def added_to(self, output: SamplerOutput) -> SamplerOutput:
        """A step's output with those of its tokens; they must have arrived on the host."""
        told: defaultdict[Kind, dict[int, list[TokenLogprob]]] = defaultdict(dict)
        ids, own = self.token_ids[:, 0].tolist(), self.own[:, 0].tolist()
        top_ids, top = self.top_ids.tolist(), self.top.tolist()
        first = 0
        for share in self.shares:
            is_prompt = share.kind == "prompt"
            num_rows = share.num_rows if is_prompt else len(output.token_ids[share.index])
            told[share.kind][share.index] = [
                TokenLogprob(ids[i], own[i], _best(top_ids[i], top[i], share.num_top))
                for i in range(first, first + num_rows)
            ]
            first += share.num_rows
        pairs = {
            i: [*zip(raw, told["processed"][i], strict=True)] for i, raw in told["raw"].items()
        }
        return replace(
            output,
            logprobs=told["asked"],
            prompt_logprobs=told["prompt"],
            raw_and_processed=pairs,
        )


def _best(
    token_ids: Sequence[int], logprobs: Sequence[float], limit: int
) -> tuple[tuple[int, float], ...]:
    pairs = zip(token_ids[:limit], logprobs[:limit], strict=True)
    return tuple((token_id, logprob) for token_id, logprob in pairs if logprob > float("-inf"))


def guess_certain(batch: Batch, draft: Draft) -> Draft:
    """The draft, with guesses in place of certain tokens where logprobs are asked for.

    Certain tokens have no rows of their own. Guesses have, and what must stand there does.
    """
    if not any(draft.num_certain):
        return draft
    asks = [scheduled.request.params.tells_logprobs for scheduled in batch.requests]
    places = [i for i, n in enumerate(draft.num_certain) if n and asks[i]]
    if not places:
        return draft
    num_certain, probs = list(draft.num_certain), list(draft.probs)
    for i in places:
        q, certain = probs[i], draft.token_ids[i][: num_certain[i]]
        if q is not None:
            ids = torch.tensor(certain, device=q.device)
            one_hot = torch.nn.functional.one_hot(ids, q.shape[1])
            probs[i] = torch.cat([one_hot.to(q.dtype), q])
        num_certain[i] = 0
    return replace(draft, num_certain=num_certain, probs=probs)
