"""A toy engine that is looked over after every step, and what its requests must write."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.base import Drafter
from structspec.engine.batch import Batch, Draft, SamplerOutput
from structspec.engine.pace import Pace
from structspec.masking import Masker
from structspec.request import Request, RequestStatus
from tests.engine.coupled import scores
from tests.engine.test_engine import assert_blocks_add_up
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, hashed_logits
from tests.engine.toy_grammar import ToyGrammar, ready


@dataclass(frozen=True)
class Ask:
    """One request: `texts` are all that its grammar allows, None is free text."""

    prompt: Sequence[int] = (0, 1)
    texts: tuple[str, ...] | None = None
    max_tokens: int = 12
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    speculative: bool = True
    temperature: float = 0.0
    seed: int = 0

    def start(self, toy: ToyEngine, compiled: Future | None = None) -> Request:
        """Add it to an engine, its grammar ready unless `compiled` is still to come."""
        if compiled is None and self.texts is not None:
            compiled = ready(ToyGrammar(self.texts))
        return toy.add(
            self.prompt,
            compiled=compiled,
            max_tokens=self.max_tokens,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
            speculative=self.speculative,
            temperature=self.temperature,
            seed=self.seed,
        )

    def written_alone(self, *, is_coupled: bool = False) -> list[int]:
        """What the model writes under the mask, token by token.

        By hand if it is greedy, or drawn by a coupled sampler.
        """
        if self.temperature > 0 and not is_coupled:
            toy = ToyEngine(make_config(), RandomDrafter(0), masker=Masker(VOCABULARY))
            request = replace(self, speculative=False).start(toy)
            toy.run([request])
            return request.output_token_ids
        matcher = ToyGrammar(self.texts).matcher() if self.texts is not None else None
        written: list[int] = []
        while len(written) < self.max_tokens and not self._is_stopped(written):
            logits = hashed_logits((*self.prompt, *written))
            scored = scores(logits, self.temperature, self.seed, len(written))
            free = range(STOP if self.ignore_eos else STOP + 1)
            allowed = matcher.allowed() if matcher is not None else free
            written.append(max(allowed, key=scored.__getitem__))
            assert matcher is None or matcher.accept(written[-1])
        return written

    def _is_stopped(self, written: Sequence[int]) -> bool:
        text = VOCABULARY.decode_bytes(written).decode()
        return STOP in written or any(stop in text for stop in self.stop)

    def check(self, request: Request, *, is_coupled: bool = False) -> None:
        """A finished request has written that, says why it ended, and counts what it wrote."""
        expected = self.written_alone(is_coupled=is_coupled)
        text = VOCABULARY.decode_bytes(expected).decode()
        starts = [(text.find(stop), stop) for stop in self.stop if stop in text]
        # of the stop strings that are whole first, where the longest begins
        cuts = [(start + len(stop), start) for start, stop in starts]
        _, cut = min(cuts, default=(0, len(text)))
        assert request.output_token_ids == expected
        assert request.text.text == text[:cut]
        assert request.finish_reason == ("stop" if self._is_stopped(expected) else "length")
        assert request.usage.completion_tokens == len(expected)
        assert request.error is None


LONG = Ask((0, 1), max_tokens=12, ignore_eos=True)
ALONG = "cbcbacbbcacb"  # no two letters of it are one token


class GuessingPace(Pace):
    """Never stops guessing, whatever it costs."""

    def landed(self, batch: Batch, draft: Draft, output: SamplerOutput) -> None:
        pass


NEVER_WAITS = GuessingPace(1.0)
ALWAYS_WAITS = GuessingPace(-1.0)  # for each step before the next is planned


def make_config(**changes: int) -> EngineConfig:
    """Room for everybody, unless changed."""
    sizes = {"block_size": 2, "num_blocks": 200, "max_num_batched_tokens": 16, **changes}
    return EngineConfig(**sizes, speculative=SpeculativeConfig(num_speculative_tokens=4))


class Watched:
    """Steps a toy engine that runs ahead and checks its state and its news every time."""

    def __init__(
        self,
        config: EngineConfig | None = None,
        drafter: Drafter | None = None,
        *,
        pace: Pace | None = None,
        **parts: object,
    ) -> None:
        drafter = drafter or RandomDrafter(0)
        parts = {"masker": Masker(VOCABULARY), "runs_ahead": True, **parts}
        self.toy = ToyEngine(config or make_config(), drafter, pace=pace, **parts)
        self.requests: list[Request] = []
        self.told: list[Request] = []  # who was told to have finished

    def start(self, ask: Ask, compiled: Future | None = None) -> Request:
        request = ask.start(self.toy, compiled)
        self.requests.append(request)
        return request

    def step(self) -> list[Request]:
        news = self.toy.engine.step()
        assert len(set(news)) == len(news)
        assert not set(news) & set(self.told), "news after the last"
        self.told += [request for request in news if request.is_finished]
        if self.toy.engine.is_idle and not news:
            running = [one for one in self.requests if one.status is RequestStatus.RUNNING]
            assert all(request.is_grammar_pending for request in running)
        self.check()
        return news

    def run(self) -> None:
        """Step until all are finished and know it."""
        for _ in range(2000):
            if len(self.told) == len(self.requests):
                return
            self.step()
        raise AssertionError("the engine makes no progress")

    def check(self) -> None:
        toy = self.toy
        assert_blocks_add_up(toy, self.requests)
        for request in self.requests:
            num_slots = len(request.block_table) * toy.block_manager.block_size
            if request.status is not RequestStatus.RUNNING:
                assert num_slots == 0
                continue
            assert request.num_output_tokens + request.num_pending <= request.max_tokens
            num_computed = request.num_computed_tokens
            assert num_computed <= min(request.num_known_tokens, num_slots)
            if not request.is_held:  # nobody keeps a block without a use for it
                assert num_slots < request.num_known_tokens + toy.block_manager.block_size
            num_told = min(num_computed, len(request.token_ids))
            assert toy.runner.context(request, num_told) == tuple(request.token_ids[:num_told])
