"""Libraries that are scored only where they are installed, as they come: outlines-core, LMFE."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from structspec.bench.cases import Case
from structspec.bench.columns import Compiled, Refused
from structspec.grammars.base import Bitmask
from structspec.vocabulary import Vocabulary

_WORD_BYTES = 4  # of a bitmask


class BareOutlines:
    """outlines-core: the schema as a regex, the regex as an index over the vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from outlines_core import Vocabulary as Library

        by_bytes: dict[bytes, list[int]] = {}
        for token_id, data in enumerate(vocabulary.token_bytes):
            if data is not None:
                by_bytes.setdefault(data, []).append(token_id)
        self._stop = vocabulary.stop_token_ids[0]
        self._vocabulary = Library(self._stop, by_bytes)

    def compile(self, case: Case) -> Compiled:
        """What `build_regex_from_schema` and `Index` make of it."""
        from outlines_core import Guide, Index
        from outlines_core.json_schema import build_regex_from_schema

        if case.kind not in ("json_schema", "regex"):
            raise Refused(f"outlines-core has no {case.kind}")
        try:
            regex = case.body
            if case.kind == "json_schema":
                regex = build_regex_from_schema(json.dumps(case.body))
            index = Index(regex, self._vocabulary)
        except (ValueError, TypeError, RuntimeError) as error:
            raise Refused(str(error)) from error
        return Compiled(lambda: _OutlinesWalker(Guide(index), self._stop))


class _OutlinesWalker:
    def __init__(self, guide: Any, stop: int) -> None:
        self._guide = guide
        self._stop = stop

    def fill(self, bitmask: Bitmask, row: int) -> None:
        words = bitmask[row]
        self._guide.write_mask_into(words.ctypes.data, len(words), _WORD_BYTES)

    def accept(self, token_id: int) -> bool:
        if token_id == self._stop:
            return bool(self._guide.is_finished())
        if not self._guide.accepts_tokens([token_id]):
            return False
        self._guide.advance(token_id)
        return True


class BareFormatEnforcer:
    """lm-format-enforcer: a character parser walked over a tree of the tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from lmformatenforcer import TokenEnforcerTokenizerData

        def decode(token_ids: list[int]) -> str:
            return vocabulary.decode_bytes(token_ids).decode(errors="replace")

        texts = ((i, decode([i])) for i, data in enumerate(vocabulary.token_bytes) if data)
        self._stops = vocabulary.stop_token_ids
        self._tokens = TokenEnforcerTokenizerData(
            [(token_id, text, False) for token_id, text in texts if "\ufffd" not in text],
            decode,
            list(self._stops),
            use_bitmask=False,
            vocab_size=vocabulary.vocab_size,
        )

    def compile(self, case: Case) -> Compiled:
        """What `JsonSchemaParser` or `RegexParser` makes of it."""
        from lmformatenforcer import JsonSchemaParser, RegexParser, TokenEnforcer

        if case.kind not in ("json_schema", "regex"):
            raise Refused(f"lm-format-enforcer has no {case.kind}")
        make = JsonSchemaParser if case.kind == "json_schema" else RegexParser
        try:
            make(case.body)
        except Exception as error:  # it raises whatever its own parts do
            raise Refused(f"{type(error).__name__}: {error}") from error
        return Compiled(
            lambda: _EnforcerWalker(TokenEnforcer(self._tokens, make(case.body)), self._stops)
        )


class _EnforcerWalker:
    def __init__(self, enforcer: Any, stops: tuple[int, ...]) -> None:
        self._enforcer = enforcer
        self._stops = stops
        self._taken: list[int] = []

    def fill(self, bitmask: Bitmask, row: int) -> None:
        bits = np.zeros(32 * bitmask.shape[1], np.uint8)
        bits[self._allowed()] = 1
        bitmask[row] = np.packbits(bits, bitorder="little").view(np.int32)

    def accept(self, token_id: int) -> bool:
        if token_id not in self._allowed():
            return False
        if token_id not in self._stops:
            self._taken.append(token_id)
        return True

    def _allowed(self) -> list[int]:
        allowed: list[int] = self._enforcer.get_allowed_tokens(self._taken).allowed_tokens
        return allowed
