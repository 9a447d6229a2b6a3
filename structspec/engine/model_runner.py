"""Run the target model over one step: flatten the batch, compute its logits, keep its KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft, ScheduledRequest, guessed
from structspec.engine.kv_cache import KVCache, choose_num_blocks
from structspec.models.inputs import AttentionMetadata, ForwardInput
from structspec.models.linear import MIN_ROWS
from structspec.models.loading import LoadedModel
from structspec.request import Request, SamplingParams

_IDLE_SIZES = (1, 16, 32)  # one, what a tile holds, and twice that


class ModelRunner:
    """The target model and its KV cache; used by one thread.

    On the CPU in float32 a row's logits have the same bits whatever else the step holds: other
    requests, other chunks, drafts behind it.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self._network = loaded.network
        num_blocks = choose_num_blocks(loaded.config, config, loaded.network.dtype)
        self.kv_cache = KVCache(
            loaded.config,
            num_blocks,
            config.block_size,
            loaded.network.dtype,
            loaded.network.device,
        )
        self._max_num_rows = config.max_num_batched_tokens
        self.run_idle(1)  # compiles the kernels, rather than in the first request's time

    def forward(self, batch: Batch, draft: Draft, last_token_ids: Tensor | None = None) -> Tensor:
        """Float32 logits [num_rows, vocab_size]: 1 + guesses rows per sampled request, in order.

        Behind them stand the rows of prompts that logprobs are asked for.
        Keys and values of all computed tokens and drafts are written at their positions, from
        `first_position` on; the request's block table must have room for them.
        """
        last = last_token_ids.tolist() if last_token_ids is not None else []
        inputs, num_logits_rows = flatten(batch, draft, self.kv_cache.block_size, last)
        logits = self._network.forward(inputs, self.kv_cache)
        return logits[:num_logits_rows].float()

    @property
    def idle_sizes(self) -> Sequence[int]:
        """Numbers of rows whose steps tell what all others cost; the second fills a tile."""
        return [min(n, self._max_num_rows) for n in _IDLE_SIZES]

    @property
    def is_padded(self) -> bool:
        """Whether steps are padded to certain numbers of rows."""
        return False

    def run_idle(self, num_rows: int) -> None:
        """Compute a step of so many requests with one token each; block 0 is scribbled."""
        requests = [Request(0, [0], SamplingParams(), 1, block_table=[0]) for _ in range(num_rows)]
        shares = [ScheduledRequest(request, 1, 0, True) for request in requests]
        self.forward(Batch(shares), guessed([[]] * num_rows))


def known_token_ids(scheduled: ScheduledRequest, last_token_ids: Sequence[int]) -> Sequence[int]:
    """The tokens that a request computes in a step, without drafts."""
    if scheduled.last_index >= 0:
        return [last_token_ids[scheduled.last_index]]
    first = scheduled.first_position
    return scheduled.request.token_ids[first : first + scheduled.num_tokens]


def flatten(
    batch: Batch, draft: Draft, block_size: int, last_token_ids: Sequence[int] = ()
) -> tuple[ForwardInput, int]:
    """All tokens of a step one behind the other, and how many logits rows are real.

    Rows and logits rows are padded to MIN_ROWS: fewer are slower, and one alone has other bits.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slot_mapping: list[int] = []
    logits_rows: list[int] = []
    prompt_rows: list[int] = []
    cu_seqlens_q, context_lens = [0], []
    for scheduled, draft_ids, num_certain in zip(
        batch.requests, draft.token_ids, draft.num_certain, strict=True
    ):
        request, first = scheduled.request, scheduled.first_position
        known = known_token_ids(scheduled, last_token_ids)
        context = first + len(known) + len(draft_ids)
        prompt_rows += range(len(token_ids), len(token_ids) + scheduled.num_prompt_rows)
        token_ids += [*known, *draft_ids]
        positions += range(first, context)
        table = request.block_table
        slot_mapping += [
            table[position // block_size] * block_size + position % block_size
            for position in range(first, context)
        ]
        cu_seqlens_q.append(len(token_ids))
        context_lens.append(context)
        if scheduled.is_sampled:
            num_guesses = len(draft_ids) - num_certain
            logits_rows += range(len(token_ids) - num_guesses - 1, len(token_ids))
        else:
            assert not draft_ids
    num_padding = max(0, MIN_ROWS - len(token_ids))
    logits_rows += prompt_rows
    num_logits_rows = len(logits_rows)
    logits_rows += [0] * max(0, MIN_ROWS - num_logits_rows)
    metadata = AttentionMetadata(
        positions=torch.tensor(positions + [0] * num_padding),
        slot_mapping=torch.tensor(slot_mapping + [-1] * num_padding),
        cu_seqlens_q=torch.tensor(cu_seqlens_q),
        context_lens=torch.tensor(context_lens),
        block_tables=_padded_tables([each.request.block_table for each in batch.requests]),
    )
    token_ids += [0] * num_padding
    return ForwardInput(
        torch.tensor(token_ids), torch.tensor(logits_rows), metadata
    ), num_logits_rows


def _padded_tables(tables: Sequence[Sequence[int]]) -> Tensor:  # [num_requests, max_num_blocks]
    width = max(map(len, tables))
    return torch.tensor([[*table, *[0] * (width - len(table))] for table in tables])
