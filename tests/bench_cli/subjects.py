"""Stand-ins for grammar libraries; those that misbehave do so when a schema asks for it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from structspec.bench.cases import Case, Instance
from structspec.bench.columns import Compiled
from structspec.grammars.base import Bitmask, Report
from structspec.vocabulary import Vocabulary

STOP = 256


class TextsWalker:
    """Accepts exactly these texts, byte by byte."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = [text.encode() for text in texts]
        self._taken = b""

    def allowed(self) -> set[int]:
        taken = self._taken
        matching = [text[len(taken) :] for text in self._texts if text.startswith(taken)]
        return {rest[0] if rest else STOP for rest in matching}

    def fill(self, bitmask: Bitmask, row: int) -> None:
        bits = np.zeros(32 * bitmask.shape[1], np.uint8)
        bits[list(self.allowed())] = 1
        bitmask[row] = np.packbits(bits, bitorder="little").view(np.int32)

    def accept(self, token_id: int) -> bool:
        if token_id not in self.allowed():
            return False
        self._taken += bytes([token_id]) if token_id != STOP else b""
        return True


class LyingWalker(TextsWalker):
    """Its mask is right, but accept takes everything."""

    def accept(self, token_id: int) -> bool:
        super().accept(token_id)
        return True


class Texts:
    """A library that admits exactly these texts of every constraint."""

    def __init__(self, *texts: str, report: Report | None = None) -> None:
        self._compiled = Compiled(lambda: TextsWalker(texts), report)

    def compile(self, case: Case) -> Compiled:
        return self._compiled


class Raises:
    """A library that ends every compile like this."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def compile(self, case: Case) -> Compiled:
        raise self._error


class Misbehaves:
    """Does to its own process what the schema says; otherwise admits `{}` alone."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        assert vocabulary.stop_token_ids == (STOP,)

    def compile(self, case: Case) -> Compiled:
        match case.body.get("do"):
            case "exit":
                os._exit(3)
            case "spin":
                while True:
                    pass
            case "sleep":
                time.sleep(3600)
            case "grow":
                return Compiled(lambda: TextsWalker([str(bytearray(2**40))]))
            case "crash":
                os.write(2, b"terminate called after throwing std::bad_alloc\n")
                os.kill(os.getpid(), signal.SIGABRT)
        return Compiled(lambda: TextsWalker(["{}"]))


def case(
    schema: Any,
    labels: Mapping[str, bool] | None = None,
    *,
    source: str = "made",
    name: str = "case",
    num_doubtful: int = 0,
) -> Case:
    """A case whose instances are JSON texts with their labels."""
    instances = tuple(
        Instance(json.loads(text), False, is_valid) for text, is_valid in (labels or {}).items()
    )
    return Case(name, source, (), "json_schema", schema, instances, num_doubtful)
