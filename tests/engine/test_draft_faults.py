"""What goes wrong while a step is drafted for costs drafts, and nobody a token."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.registry import make_drafter
from structspec.errors import EngineError
from structspec.grammars.base import MatcherFailed
from structspec.masking import Masker
from structspec.request import Request
from tests.engine.toy import VOCABULARY, ToyEngine
from tests.engine.toy_grammar import CertainMatcher, ToyGrammar, ready

CONFIG = EngineConfig(
    block_size=2, num_blocks=60, speculative=SpeculativeConfig(num_speculative_tokens=4)
)


class Pitfall(CertainMatcher):
    """Fails behind a text that ends in `bb`, as a library does that has walked into a dead end."""

    def check(self) -> None:
        if self.written.endswith(b"bb"):
            raise MatcherFailed("came to where nothing is allowed")

    def fill(self, bitmask, row, budget=None):
        self.check()
        super().fill(bitmask, row, budget)

    def accept(self, token_id):
        self.check()
        return super().accept(token_id)

    def forced_tokens(self, limit):
        self.check()
        return []


@dataclass(frozen=True)
class PitfallGrammar(ToyGrammar):
    matcher_class: type[CertainMatcher] = Pitfall


def constrained(toy: ToyEngine, texts: tuple[str, ...], predicted: str, **params) -> Request:
    request = toy.add([0, 1], compiled=ready(PitfallGrammar(texts)), max_tokens=12, **params)
    request.prediction_token_ids = VOCABULARY.encode_text(predicted)
    return request


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4).map(tuple),
    predicted=st.text("abc", max_size=6),
    method=st.sampled_from(["hybrid", "prediction", "forced"]),
    is_hasty=st.booleans(),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_a_grammar_that_fails_behind_a_draft_fails_nobody_who_does_not_go_there(
    texts, predicted, method, is_hasty, temperature
):
    def run(speculative: bool) -> tuple[Request, Request]:
        drafter = make_drafter(
            VOCABULARY, SpeculativeConfig(method=method), step_seconds=lambda n: float(not is_hasty)
        )
        toy = ToyEngine(CONFIG, drafter, masker=Masker(VOCABULARY))
        params = {"temperature": temperature, "seed": 3, "speculative": speculative}
        one = constrained(toy, texts, predicted, **params)
        other = toy.add([1, 2], max_tokens=12, **params)
        toy.run([one, other])
        return one, other

    for drafted, plain in zip(run(True), run(False), strict=True):
        assert drafted.output_token_ids == plain.output_token_ids
        assert isinstance(drafted.error, EngineError) == isinstance(plain.error, EngineError)
