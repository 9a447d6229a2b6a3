"""The backend, by vLLM's contract for one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from structspec.errors import GrammarError, InvalidRequest
from structspec.grammars.base import MatcherFailed
from structspec.integrations.vllm import GrammarOptions, StructSpecGrammar
from tests.integrations.vllm.engine import PERSON, STOP, VOCAB_SIZE, Core, encode

CONSTRAINTS = {
    "json": (PERSON, '{"name": "Ada", "born": 1815}'),
    "json_object": (True, '{"a": [1]}'),
    "regex": ("[0-9]{4}-[0-9]{2}", "1815-12"),
    "choice": (["yes", "no"], "no"),
    "grammar": ('root ::= "[" [ab]* "]"', "[abba]"),
    "structural_tag": (
        {"type": "structural_tag", "format": {"type": "const_string", "value": "so"}},
        "so",
    ),
}


def grammar_of(request) -> StructSpecGrammar:
    grammar = request.structured_output_request.grammar
    assert isinstance(grammar, StructSpecGrammar), grammar
    return grammar


@pytest.fixture(scope="module")
def core() -> Core:
    return Core()


def row_of(grammar: StructSpecGrammar) -> set[int]:
    rows = torch.full((2, -(-VOCAB_SIZE // 32)), 7, dtype=torch.int32)
    grammar.fill_bitmask(rows, 1)
    assert (rows[0] == 7).all()
    bits = np.unpackbits(rows.numpy()[1].view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_every_kind_of_constraint_is_compiled_and_held(core: Core, kind: str):
    value, text = CONSTRAINTS[kind]
    grammar = grammar_of(core.add({kind: value}))
    for token_id in encode(text):
        assert token_id in row_of(grammar)
        assert grammar.accept_tokens("", [token_id])
    assert STOP in row_of(grammar) and not grammar.is_terminated()
    assert grammar.accept_tokens("", [STOP]) and grammar.is_terminated()


def test_validating_tokens_keeps_the_longest_beginning_and_moves_nothing(core: Core):
    grammar = grammar_of(core.add({"regex": "[0-9]{4}"}))
    before = row_of(grammar)
    assert grammar.validate_tokens(encode("18a5")) == encode("18")
    assert grammar.validate_tokens(encode("a")) == []
    assert grammar.validate_tokens([]) == []
    assert row_of(grammar) == before


def test_tokens_of_which_one_is_refused_are_not_accepted_at_all(core: Core):
    grammar = grammar_of(core.add({"regex": "[0-9]{4}"}))
    before = row_of(grammar)
    assert not grammar.accept_tokens("", encode("18a"))
    assert row_of(grammar) == before
    assert grammar.accept_tokens("", encode("1815"))
    grammar.rollback(2)
    assert grammar.accept_tokens("", encode("99"))
    grammar.reset()
    assert row_of(grammar) == before


def test_no_row_allows_what_the_tokenizer_does_not_have(core: Core):
    grammar = grammar_of(core.add({"grammar": "root ::= [^x]*"}))
    assert max(row_of(grammar)) < 260 < VOCAB_SIZE


def test_a_schema_that_cannot_be_held_fails_its_own_request_and_says_where(core: Core):
    request = core.add({"json": {"type": "object", "properties": {"a": {"type": "nonsense"}}}})
    error = request.structured_output_request.grammar
    assert isinstance(error, GrammarError) and "#/properties/a" in str(error)
    assert grammar_of(core.add({"regex": "a"})).accept_tokens("", encode("a"))


def test_the_report_says_what_is_enforced(core: Core):
    grammar = grammar_of(core.add({"json": PERSON}))
    assert grammar.report.exact
    assert {finding.keyword for finding in grammar.report.enforced} >= {"enum", "required"}


def test_stop_tokens_of_a_request_end_its_text_where_the_grammar_may_end(core: Core):
    newline = encode("\n")[0]
    request = core.add({"regex": "[0-9]{2}"}, stop_token_ids=[newline], structspec_style="compact")
    grammar = grammar_of(request)
    assert newline not in row_of(grammar)
    assert grammar.accept_tokens("", encode("18"))
    assert newline in row_of(grammar)
    assert grammar.accept_tokens("", [newline]) and grammar.is_terminated()


@pytest.mark.parametrize("style", ["spaced", "compact"])
def test_an_engine_says_how_json_is_written_and_a_request_may_say_otherwise(style: str):
    other = {"spaced": "compact", "compact": "spaced"}[style]
    core = Core(style=style)
    texts = {
        "spaced": '{"name": "Ada", "born": 1}',
        "compact": '{"name":"Ada","born":1}',
    }
    assert grammar_of(core.add({"json": PERSON})).accept_tokens("", encode(texts[style]))
    request = core.add({"json": PERSON}, structspec_style=other)
    assert not grammar_of(request).accept_tokens("", encode(texts[style]))
    assert grammar_of(request).accept_tokens("", encode(texts[other]))


@pytest.mark.parametrize("closed", [False, 0, "false"])
def test_open_objects_are_asked_for_over_http_without_booleans(core: Core, closed: object):
    request = core.add({"json": {"type": "object"}}, structspec_closed=closed)
    assert grammar_of(request).accept_tokens("", encode('{"any": 1'))


def test_an_unknown_option_of_a_request_fails_that_request_and_names_all_there_are(core: Core):
    error = core.add({"regex": "a"}, structspec_stile="x").structured_output_request.grammar
    assert isinstance(error, InvalidRequest)
    assert "'stile'" in str(error) and "style" in str(error)
    with pytest.raises(InvalidRequest, match="backend, closed, property_order, style"):
        GrammarOptions().updated({"stile": 1})


class Failing:
    """A matcher of a library that gives up."""

    def fill(self, bitmask: object, row: int, budget: int | None = None) -> None:
        raise MatcherFailed("a limit")


def test_a_grammar_that_fails_ends_its_text_and_takes_nothing_more(core: Core):
    grammar = grammar_of(core.add({"regex": "[0-9]*"}))
    grammar.matcher = Failing()
    assert row_of(grammar) == {STOP}
    assert isinstance(grammar.error, MatcherFailed)
    assert not grammar.accept_tokens("", encode("1"))
    assert grammar.validate_tokens([STOP]) == []


class Pitfall:
    """A matcher of digits that fails behind a 7 until that is taken back."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def accept(self, token_id: int) -> bool:
        self.check()
        self.taken.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        del self.taken[-num_tokens:]

    def fill(self, bitmask: np.ndarray, row: int, budget: int | None = None) -> None:
        self.check()
        bitmask[row] = -1

    def check(self) -> None:
        if self.taken[-1:] == encode("7"):
            raise MatcherFailed("a dead end")


def test_a_grammar_that_fails_behind_a_draft_goes_on_without_the_draft(core: Core):
    request = core.add({"regex": "[0-9]*"})
    grammar = grammar_of(request)
    grammar.matcher = Pitfall()
    everything = row_of(grammar)
    assert grammar.accept_tokens("", encode("1"))
    assert core.allowed(request, encode("27"))[-1] == {STOP}
    assert grammar.error is None and row_of(grammar) == everything
    assert grammar.validate_tokens(encode("273")) == encode("27")
    assert grammar.error is None and grammar.accept_tokens("", encode("2"))
    assert grammar.accept_tokens("", encode("7")) and row_of(grammar) == {STOP}
    assert grammar.error is not None and not grammar.accept_tokens("", encode("3"))
    assert grammar.matcher.taken == encode("127")


def test_rows_of_a_step_stand_behind_each_token_of_the_draft(core: Core):
    request = core.add({"regex": "[0-9]{2}a"})
    digits = set(encode("0123456789"))
    assert core.allowed(request, encode("18")) == [digits, digits, set(encode("a"))]
    assert core.allowed(request) == [digits]
