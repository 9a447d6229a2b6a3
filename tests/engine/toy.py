"""A model a reader can check by hand: its logits depend on the tokens that the KV cache holds.

ToyRunner writes token ids into the slots of the block tables and reads its context back from them,
as attention does. Any slip in block tables, positions or rollback changes what it answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft, Mask, SamplerOutput, guessed, no_mask
from structspec.engine.block_manager import BlockManager
from structspec.engine.draft_length import DraftLengths
from structspec.engine.engine import Engine, Sampler
from structspec.engine.model_runner import known_token_ids
from structspec.engine.outlook import Outlook
from structspec.engine.pace import Pace
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.engine.scheduler import Scheduler
from structspec.limits import Limiter
from structspec.request import Request, SamplingParams
from structspec.vocabulary import Vocabulary

STOP = 4
VOCABULARY = Vocabulary(
    (b"a", b"b", b"c", b"ab", None), (STOP,), lambda text: ["abc".index(c) for c in text]
)

LIMITER = Limiter(VOCABULARY)

Conditional = Callable[[tuple[int, ...]], Sequence[float]]  # context -> logits over 5 tokens


def hashed_logits(context: tuple[int, ...]) -> list[float]:
    """Arbitrary but fixed logits for each context; the stop token is unlikely."""
    source = random.Random(repr(context))
    return [source.gauss(0, 1) for _ in range(4)] + [source.gauss(-1.5, 1)]


class ToyRunner:
    """Runner over a paged cache of token ids."""

    def __init__(self, num_blocks: int, block_size: int, conditional: Conditional) -> None:
        self._slots = [-1] * (num_blocks * block_size)
        self._block_size = block_size
        self._conditional = conditional

    def forward(
        self, batch: Batch, draft: Draft, last_token_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        rows = []
        last = [] if last_token_ids is None else last_token_ids.tolist()
        for index, (scheduled, draft_token_ids) in enumerate(
            zip(batch.requests, draft.token_ids, strict=True)
        ):
            request, start = scheduled.request, scheduled.first_position
            known = known_token_ids(scheduled, last)
            assert len(known) == scheduled.num_tokens
            for position, token_id in enumerate([*known, *draft_token_ids], start):
                self._slots[self._slot(request, position)] = token_id
            if scheduled.is_sampled:
                end = start + scheduled.num_tokens + len(draft_token_ids)
                num_guesses = len(draft_token_ids) - draft.num_certain[index]
                rows += [
                    self._conditional(self.context(request, length))
                    for length in range(end - num_guesses, end + 1)
                ]
        for scheduled in batch.requests:
            first = scheduled.first_position + 1
            rows += [
                self._conditional(self.context(scheduled.request, length))
                for length in range(first, first + scheduled.num_prompt_rows)
            ]
        return torch.tensor(rows, dtype=torch.float32).reshape(-1, VOCABULARY.vocab_size)

    def _slot(self, request: Request, position: int) -> int:
        block_id = request.block_table[position // self._block_size]
        return block_id * self._block_size + position % self._block_size

    def context(self, request: Request, length: int) -> tuple[int, ...]:
        """The first tokens of a request, as the cache has them."""
        return tuple(self._slots[self._slot(request, position)] for position in range(length))


class RandomDrafter:
    """Drafts junk of random length, or with `conditional` draws from it and passes on its q."""

    def __init__(self, seed: int, conditional: Conditional | None = None) -> None:
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._conditional = conditional

    def propose(self, batch: Batch) -> Draft:
        token_ids: list[list[int]] = []
        probs: list[torch.Tensor | None] = []
        for scheduled in batch.requests:
            num_drafts = self._random.randint(0, scheduled.num_draft_slots)
            if not scheduled.may_guess:
                num_drafts = 0
            context = tuple(scheduled.request.token_ids)
            drafted: list[int] = []
            q_rows = []
            for _ in range(num_drafts):
                if self._conditional is None:
                    drafted.append(self._random.randrange(VOCABULARY.vocab_size))
                    continue
                q = torch.tensor(self._conditional((*context, *drafted))).softmax(0)
                drafted.append(int(torch.multinomial(q, 1, generator=self._generator)))
                q_rows.append(q)
            token_ids.append(drafted)
            probs.append(torch.stack(q_rows) if q_rows else None)
        return guessed(token_ids, probs)


class NoMasker:
    """For unconstrained requests."""

    def fill(self, batch: Batch, draft: Draft, is_masked: Sequence[bool]) -> Mask:
        return no_mask(VOCABULARY.num_words, [*map(len, draft.guesses)])

    def take_back(self, batch: Batch, draft: Draft, is_masked: Sequence[bool]) -> None:
        pass

    def advance(
        self, batch: Batch, draft: Draft, mask: Mask, output: SamplerOutput
    ) -> SamplerOutput:
        return output


class ToyEngine:
    """An engine over the toy model, with the parts a test looks into."""

    def __init__(
        self,
        config: EngineConfig,
        drafter: RandomDrafter,
        *,
        conditional: Conditional = hashed_logits,
        masker: object = None,
        sampler: Sampler | None = None,
        runs_ahead: bool = False,
        pace: Pace | None = None,
        outlook: Outlook | None = None,
        num_free_tokens: int = 1,
        draws_early: bool = False,
        draft_lengths: DraftLengths | None = None,
    ) -> None:
        assert config.num_blocks is not None
        config = config.resolved("cpu")
        self.block_manager = BlockManager(
            config.num_blocks, config.block_size, keeps_prefixes=config.enable_prefix_caching
        )
        self.scheduler = Scheduler(
            config,
            self.block_manager,
            VOCABULARY,
            config.num_blocks * config.block_size,
            num_free_tokens=num_free_tokens,
            draws_early=draws_early,
            draft_lengths=draft_lengths,
        )
        self.runner = ToyRunner(config.num_blocks, config.block_size, conditional)
        self.engine = Engine(
            self.scheduler,
            drafter,
            self.runner,
            masker or NoMasker(),
            sampler or RejectionSampler(VOCABULARY.vocab_size, VOCABULARY.stop_token_ids),
            runs_ahead=runs_ahead,
            pace=pace,
            outlook=outlook,
        )
        self._num_requests = 0

    def add(self, prompt: Sequence[int], **params: object) -> Request:
        compiled = params.pop("compiled", None)
        sampling = SamplingParams(**params)
        request = Request(
            self._num_requests, list(prompt), sampling, sampling.max_tokens or 16, compiled
        )
        request.wrappers = LIMITER.limit(sampling, is_constrained=compiled is not None)
        self._num_requests += 1
        self.scheduler.add(request)
        return request

    def run(self, requests: Sequence[Request], check: Callable[[], None] = lambda: None) -> None:
        """Step until all are finished; bounded, so that a stuck scheduler fails the test."""
        for _ in range(10_000):
            if all(request.is_finished for request in requests):
                return
            self.engine.step()
            check()
        raise AssertionError("the engine makes no progress")


def greedy_alone(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """What the toy model writes at temperature 0, token by token, without an engine."""
    context = list(prompt)
    while len(context) - len(prompt) < max_tokens:
        logits = hashed_logits(tuple(context))
        context.append(logits.index(max(logits)))
        if context[-1] == STOP:
            break
    return context[len(prompt) :]
