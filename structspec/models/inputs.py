"""What one forward pass is given: the tokens of a whole step, flattened."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """Where each row stands and where the keys and values of its context lie.

    Rows of request r are cu_seqlens_q[r] up to cu_seqlens_q[r + 1], the last of its context;
    rows behind those of the last request are padding. Tensors are int64.
    """

    positions: Tensor  # [num_rows]
    slot_mapping: Tensor  # [num_rows]: block * block_size + place, -1 for padding
    cu_seqlens_q: Tensor  # [num_requests + 1]
    context_lens: Tensor  # [num_requests], the step's own tokens included
    block_tables: Tensor  # [num_requests, max_num_blocks]
    max_query_len: int | None = None  # rows of a request at most, where that is known


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """One step's tokens, their places, and the rows whose logits are wanted. All int64."""

    token_ids: Tensor  # [num_rows]
    logits_rows: Tensor  # [num_logits_rows]
    metadata: AttentionMetadata
