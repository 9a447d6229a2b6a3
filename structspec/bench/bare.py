"""The grammar libraries as they come: default options, nothing rewritten, nothing refused for them.

White space is left to each library's default, which admits what `json.dumps` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from structspec.bench.bare_optional import BareFormatEnforcer, BareOutlines
from structspec.bench.cases import Case
from structspec.bench.columns import Compiled, Refused, Subject
from structspec.grammars.base import Bitmask, MatcherFailed
from structspec.vocabulary import Vocabulary


class BareLLGuidance:
    """llguidance: `grammar_from_json_schema` and its siblings."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from structspec.grammars.llguidance import LLGuidanceBackend

        self._vocabulary = vocabulary
        self._tokenizer = LLGuidanceBackend(vocabulary).tokenizer

    def compile(self, case: Case) -> Compiled:
        """What `LLMatcher` makes of it."""
        from llguidance import LLMatcher

        makers: dict[str, Callable[[Any], str]] = {
            "json_schema": lambda schema: LLMatcher.grammar_from_json_schema(json.dumps(schema)),
            "regex": LLMatcher.grammar_from_regex,
            "lark": LLMatcher.grammar_from_lark,
        }
        if case.kind not in makers:
            raise Refused(f"llguidance has no {case.kind}")
        try:
            grammar = makers[case.kind](case.body)
            original = LLMatcher(self._tokenizer, grammar, log_level=0)
        except ValueError as error:
            raise Refused(str(error)) from error
        if original.is_error():
            raise Refused(original.get_error())
        return Compiled(lambda: _LLGuidanceWalker(original.deep_copy(), self._vocabulary))


class _LLGuidanceWalker:
    def __init__(self, library: Any, vocabulary: Vocabulary) -> None:
        self._library = library
        self._stops = vocabulary.stop_token_ids

    def fill(self, bitmask: Bitmask, row: int) -> None:
        from llguidance.numpy import fill_next_token_bitmask

        fill_next_token_bitmask(self._library, bitmask, row)
        self._check()

    def accept(self, token_id: int) -> bool:
        if token_id in self._stops:
            return bool(self._library.is_accepting())
        is_taken: bool = self._library.try_consume_tokens([token_id]) == 1
        self._check()
        return is_taken

    def _check(self) -> None:
        if self._library.is_error():
            raise MatcherFailed(self._library.get_error())


class BareXGrammar:
    """xgrammar: `compile_json_schema(strict_mode=False)` and its siblings."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar

        info = xgrammar.TokenizerInfo(
            [data or b"" for data in vocabulary.token_bytes],
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.vocab_size,
            stop_token_ids=list(vocabulary.stop_token_ids),
        )
        self._stops = vocabulary.stop_token_ids
        self._compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)

    def compile(self, case: Case) -> Compiled:
        """What xgrammar's compiler makes of it."""
        from xgrammar import GrammarMatcher

        try:
            grammar = self._compile(case)
        except (RuntimeError, ValueError) as error:
            raise Refused(str(error).strip()) from error
        return Compiled(lambda: _XGrammarWalker(GrammarMatcher(grammar), self._stops))

    def _compile(self, case: Case) -> Any:
        match case.kind:
            case "json_schema":
                return self._compiler.compile_json_schema(
                    json.dumps(case.body), any_whitespace=True, strict_mode=False
                )
            case "regex":
                return self._compiler.compile_regex(case.body)
            case "lark":
                return self._compiler.compile_lark(case.body)
            case "ebnf":
                return self._compiler.compile_grammar(case.body)


class _XGrammarWalker:
    def __init__(self, library: Any, stops: tuple[int, ...]) -> None:
        self._library = library
        self._stops = stops

    def fill(self, bitmask: Bitmask, row: int) -> None:
        self._library.fill_next_token_bitmask(bitmask, row)

    def accept(self, token_id: int) -> bool:
        if token_id in self._stops:
            return bool(self._library.is_completed())
        return bool(self._library.accept_token(token_id))


MAKERS: dict[str, Callable[[Vocabulary], Subject]] = {
    "llguidance": BareLLGuidance,
    "xgrammar": BareXGrammar,
    "outlines": BareOutlines,
    "lm-format-enforcer": BareFormatEnforcer,
}
