"""Which of a request's drafts stand, and the token behind them, from its masked logits.

    greedy               target = argmax of each row          drafts that equal it stand
    one-hot drafts       target = a draw from each row        drafts that equal it stand
    drafts drawn from q  accept with min(1, p / q)            else recover from max(p - q, 0)

The second is the third with q one-hot, its randomness arranged so that the output does not depend
on the drafts at all: a seed gives the same tokens with and without speculation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from structspec.engine.fly import Fly
from structspec.engine.randomness import ACCEPT, DRAW, DRAW_UNSEEN, uniforms
from structspec.engine.sampling_probs import compute_target_probs
from structspec.kernels.block_verification import block_verification
from structspec.kernels.rejection_sample import rejection_sample
from structspec.kernels.sample import sample
from structspec.kernels.verify_greedy import verify_greedy
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig

_MAX_PROBS = 2**25  # float32 of the target held at once, 128 MiB, or one request's if that is more


@dataclass(frozen=True, slots=True)
class Verified:
    """One sampled request: where it stands in the batch and which logits rows are its own."""

    index: int  # in the batch, the draft and the output
    request: Request
    first_row: int  # of 1 + len(draft_token_ids) rows
    position: int  # in its output, of the token that its first row draws
    draft_token_ids: Sequence[int]
    draft_probs: Tensor | None
    num_valid: int
    is_unseen: bool = False  # by its grammar, which may refuse what is drawn

    @property
    def rows(self) -> range:
        return range(self.first_row, self.first_row + 1 + len(self.draft_token_ids))


# Tokens [len(group), longest draft + 1], padded with -1, and how many drafts were accepted.
_Tokens = tuple[Tensor, Tensor]
_Verify = Callable[[Tensor, Sequence[Verified]], _Tokens]


class Verification:
    """Verifies drafts by the method of the settings.

    "block" judges drafts with probabilities of their own together; greedy and one-hot ones gain
    nothing by it. "synthetic" and "fly" change what is written.
    """

    def __init__(self, config: SpeculativeConfig) -> None:
        method = config.rejection_sample_method
        self._judge = block_verification if method == "block" else rejection_sample
        self._fly = Fly.of(config) if method == "fly" else None
        self._accepts_valid = method == "synthetic"

    def __call__(
        self,
        logits: Tensor,  # [num_rows, vocab_size]: masked
        sampled: Sequence[Verified],
    ) -> tuple[list[list[int]], list[int]]:
        """New tokens of each request, and how many of its drafts are among them."""
        token_ids: list[list[int]] = [[] for _ in sampled]
        num_accepted = [0] * len(sampled)
        for verify, group in self._groups(sampled, logits.shape[1]):
            padded, accepted = verify(logits, [sampled[i] for i in group])
            for i, row, n in zip(group, padded.tolist(), accepted.tolist(), strict=True):
                token_ids[i] = row[: n + 1]
                num_accepted[i] = n
        return token_ids, num_accepted

    def _groups(
        self, sampled: Sequence[Verified], vocab_size: int
    ) -> Iterator[tuple[_Verify, list[int]]]:
        """What verifies the requests, and their places."""
        groups: dict[_Verify, list[int]] = {}
        for i, one in enumerate(sampled):
            groups.setdefault(self._choose(one), []).append(i)
        for verify, places in groups.items():
            if verify == self._verify_greedy:
                yield verify, places
            else:
                yield from ((verify, chunk) for chunk in _chunks(places, sampled, vocab_size))

    def _choose(self, one: Verified) -> _Verify:
        if one.request.params.temperature == 0:
            return self._verify_greedy
        if one.draft_probs is None or self._accepts_valid:
            return self._verify_drawn
        return self._verify_probabilistic

    def _verify_greedy(self, logits: Tensor, group: Sequence[Verified]) -> _Tokens:
        targets = _own_rows(logits.argmax(dim=-1), group)
        own = torch.tensor([row for one in group for row in one.rows], device=logits.device)
        return self._verify_targets(
            targets, group, lambda some: logits[own[some]].float().softmax(dim=-1)
        )

    def _verify_drawn(self, logits: Tensor, group: Sequence[Verified]) -> _Tokens:
        # drawn again in place of a refused token with the same number, some would come too often
        draws = [
            u
            for one in group
            for u in _uniforms(one, DRAW_UNSEEN if one.is_unseen else DRAW, len(one.rows))
        ]
        probs = _target_probs(logits, group)
        targets = sample(probs, _float64(draws, logits.device))
        return self._verify_targets(targets, group, lambda some: probs[some])

    def _verify_targets(
        self, targets: Tensor, group: Sequence[Verified], probs: Callable[[Tensor], Tensor]
    ) -> _Tokens:
        """Drafts that equal the target's own tokens; `probs` are those of some of the rows."""
        drafts, cu_num_drafts, num_valid, max_num_drafts = _layout(group, targets.device)
        passes = None
        if self._fly is not None:
            rows = _draft_rows(group, targets.device)
            passes = _let_pass(self._fly, drafts == targets[rows], drafts, group, probs)
            targets[rows] = torch.where(passes, drafts, targets[rows])
        token_ids, num_accepted = verify_greedy(
            targets,
            drafts,
            cu_num_drafts,
            num_valid,
            max_num_drafts,
            accepts_valid=self._accepts_valid,
        )
        _count_passes(passes, num_accepted, group)
        return token_ids, num_accepted

    def _verify_probabilistic(self, logits: Tensor, group: Sequence[Verified]) -> _Tokens:
        device = logits.device
        drafts, cu_num_drafts, num_valid, max_num_drafts = _layout(group, device)
        p = _target_probs(logits, group)
        q = torch.cat([one.draft_probs for one in group if one.draft_probs is not None]).to(device)
        accept = _float64(
            [u for one in group for u in _uniforms(one, ACCEPT, len(one.draft_token_ids))], device
        )
        passes = None
        if self._fly is not None:
            p_d = p[_draft_rows(group, device), drafts].double()
            is_accepted = accept * q.gather(1, drafts[:, None])[:, 0].double() < p_d
            passes = _let_pass(self._fly, is_accepted, drafts, group, lambda some: p[some])
            accept[passes] = 0
        token_ids, num_accepted = self._judge(
            p,
            drafts,
            q,
            torch.arange(len(drafts), device=device),
            cu_num_drafts,
            num_valid,
            accept,
            # Which of the rows draws is settled by the others: any position of the step will do.
            _float64([u for one in group for u in _uniforms(one, DRAW, 1)], device),
            max_num_drafts,
        )
        _count_passes(passes, num_accepted, group)
        return token_ids, num_accepted


def _let_pass(
    fly: Fly,
    is_accepted: Tensor,  # [num_drafts] bool
    draft_token_ids: Tensor,
    group: Sequence[Verified],
    probs: Callable[[Tensor], Tensor],
) -> Tensor:
    """Which drafts pass though they are rejected, [num_drafts] bool."""
    flags, first = is_accepted.tolist(), 0
    found: list[int] = []
    for one in group:
        end = first + len(one.draft_token_ids)
        found += [first + place for place in fly.find(flags[first:end], one.num_valid)]
        first = end
    passes = torch.zeros_like(is_accepted)
    if found:
        some = torch.tensor(found, device=passes.device)
        rows = _draft_rows(group, passes.device)[some]
        passes[some] = fly.is_unsure(probs(rows), draft_token_ids[some])
    return passes


def _count_passes(passes: Tensor | None, num_accepted: Tensor, group: Sequence[Verified]) -> None:
    """Tell the requests' statistics; drafts behind the last accepted one do not count."""
    if passes is None:
        return
    flags, first = passes.tolist(), 0
    for one, count in zip(group, num_accepted.tolist(), strict=True):
        one.request.stats.num_let_pass += sum(flags[first : first + count])
        first += len(one.draft_token_ids)


def _chunks(
    places: Sequence[int], sampled: Sequence[Verified], vocab_size: int
) -> Iterator[list[int]]:
    """Those requests in groups of so few rows that their probabilities do not fill the memory."""
    chunk: list[int] = []
    num_rows, most = 0, _MAX_PROBS // vocab_size
    for place in places:
        if chunk and num_rows + len(sampled[place].rows) > most:
            yield chunk
            chunk, num_rows = [], 0
        chunk.append(place)
        num_rows += len(sampled[place].rows)
    if chunk:
        yield chunk


def _uniforms(one: Verified, purpose: int, count: int) -> list[float]:
    return uniforms(one.request.seed, purpose, one.position, count)


def _float64(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device)


def _target_probs(logits: Tensor, group: Sequence[Verified]) -> Tensor:
    params = [one.request.params for one in group for _ in one.rows]
    return compute_target_probs(_own_rows(logits, group), params)


def _own_rows(values: Tensor, group: Sequence[Verified]) -> Tensor:
    """The rows of these requests; no copy where they are all there are."""
    rows = [row for one in group for row in one.rows]
    if len(rows) == values.shape[0]:
        return values
    return values[torch.tensor(rows, device=values.device)]


def _draft_rows(group: Sequence[Verified], device: torch.device) -> Tensor:
    """Which of the group's own rows verifies each of its drafts, [num_drafts]."""
    rows: list[int] = []
    row = 0
    for one in group:
        rows += range(row, row + len(one.draft_token_ids))
        row += len(one.rows)
    return torch.tensor(rows, dtype=torch.int64, device=device)


def _layout(group: Sequence[Verified], device: torch.device) -> tuple[Tensor, Tensor, Tensor, int]:
    """Draft ids [num_drafts], cu_num_draft_tokens, num_valid and the longest draft's length."""
    lengths = [len(one.draft_token_ids) for one in group]
    flat = [token_id for one in group for token_id in one.draft_token_ids]
    return (
        torch.tensor(flat, dtype=torch.int64, device=device),
        torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device),
        torch.tensor([one.num_valid for one in group], dtype=torch.int32, device=device),
        max(lengths),
    )
