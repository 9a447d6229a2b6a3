"""What bias and penalties make of a step's logits: a list of edits, at most one per place.

    x  += logit_bias[token]
    x   = x / repetition_penalty if x > 0 else x * repetition_penalty    if it was read or written
    x  -= frequency_penalty * count + presence_penalty * (count > 0)     count: times written

Row j of a request counts its output, its certain tokens and its first j guesses as written: that is
the text which its token would follow. So drafts change nothing of what is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from structspec.engine.batch import Batch, Draft
from structspec.engine.staging import send_arrays
from structspec.kernels.edit_logits import edit_logits
from structspec.request import Request

_Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32],
                 NDArray[np.float32]]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """Edits of logits, as edit_logits takes them; no two of one place."""

    rows: NDArray[np.int32]
    token_ids: NDArray[np.int32]
    bias: NDArray[np.float32]
    repetition: NDArray[np.float32]
    penalty: NDArray[np.float32]

    def apply(self, logits: Tensor) -> None:
        """Edit in place; on a GPU this is only launched."""
        names = ("rows", "token_ids", "bias", "repetition", "penalty")
        arrays = send_arrays({name: getattr(self, name) for name in names}, logits.device)
        edit_logits(logits, *(arrays[name] for name in names))


class TokenTable:
    """The tokens that a request's edits are about, and how often it has written each.

    Kept from step to step: only tokens that are new since the last one are counted.
    """

    def __init__(self, request: Request) -> None:
        self._params = params = request.params
        read = request.prompt_token_ids if params.repetition_penalty != 1 else ()
        biased = dict(params.logit_bias)
        self._slots = {token_id: i for i, token_id in enumerate(dict.fromkeys([*biased, *read]))}
        self._token_ids = np.array(list(self._slots), np.int32)
        self._bias = np.array([biased.get(t, 0.0) for t in self._slots], np.float32)
        self._is_read = np.isin(self._token_ids, np.array(read, np.int32))
        self._counts = np.zeros(len(self._slots), np.int32)
        self._num_seen = request.num_prompt_tokens  # of its tokens

    def rows(self, token_ids: Sequence[int], drafts: Sequence[int], num_certain: int) -> LogitEdits:
        """The edits of one row behind the certain drafts and of one behind each guess.

        The rows are counted from 0; `token_ids` are the request's, prompt and output.
        """
        params = self._params
        num_rows = 1 + len(drafts) - num_certain
        if not params.is_penalized:
            drafts = ()
        else:
            self._catch_up(token_ids)
            self._add([token_id for token_id in drafts if token_id not in self._slots])
        counts = np.tile(self._counts, (num_rows, 1))
        for index, token_id in enumerate(drafts):
            counts[max(0, index + 1 - num_certain) :, self._slots[token_id]] += 1
        is_written = counts > 0
        is_known = is_written | self._is_read
        repetition = np.where(is_known, np.float32(params.repetition_penalty), np.float32(1))
        penalty = params.frequency_penalty * counts + params.presence_penalty * is_written
        return LogitEdits(
            np.repeat(np.arange(num_rows, dtype=np.int32), len(self._token_ids)),
            np.tile(self._token_ids, num_rows),
            np.tile(self._bias, num_rows),
            repetition.ravel(),
            penalty.astype(np.float32).ravel(),
        )

    def _catch_up(self, token_ids: Sequence[int]) -> None:
        """Count the tokens that were written since."""
        new = token_ids[self._num_seen :]
        self._num_seen = len(token_ids)
        self._add([token_id for token_id in new if token_id not in self._slots])
        for token_id in new:
            self._counts[self._slots[token_id]] += 1

    def _add(self, token_ids: Sequence[int]) -> None:
        """Make room for tokens that were not in question before."""
        for token_id in token_ids:
            self._slots.setdefault(token_id, len(self._slots))
        num_new = len(self._slots) - len(self._token_ids)
        if num_new:
            added = list(self._slots)[-num_new:]
            self._token_ids = np.append(self._token_ids, np.array(added, np.int32))
            self._bias = np.append(self._bias, np.zeros(num_new, np.float32))
            self._is_read = np.append(self._is_read, np.zeros(num_new, np.bool_))
            self._counts = np.append(self._counts, np.zeros(num_new, np.int32))


def collect_edits(batch: Batch, draft: Draft) -> LogitEdits | None:
    """The edits of a step's logits; None where no request asks for any.

    The tokens of requests with penalties must all be known, unless what is drawn is dropped.
    """
    parts: list[LogitEdits] = []
    first_row = 0
    for scheduled, drafts, num_certain in zip(
        batch.requests, draft.token_ids, draft.num_certain, strict=True
    ):
        if not scheduled.is_sampled:
            continue
        request = scheduled.request
        if request.params.edits_logits and not (scheduled.is_stale or request.is_finished):
            table = request.token_table = request.token_table or TokenTable(request)
            num_known = scheduled.first_position + scheduled.num_tokens
            assert not request.is_penalized or num_known == len(request.token_ids)
            edits = table.rows(request.token_ids, drafts, num_certain)
            edits.rows[:] += first_row
            parts.append(edits)
        first_row += 1 + len(drafts) - num_certain
    return _joined(parts) if parts else None


def _joined(parts: Sequence[LogitEdits]) -> LogitEdits:
    return LogitEdits(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.token_ids for part in parts]),
        np.concatenate([part.bias for part in parts]),
        np.concatenate([part.repetition for part in parts]),
        np.concatenate([part.penalty for part in parts]),
    )
