"""Where compiled grammars are kept: in memory by use and size, on disk by what they are made of."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from structspec.grammars.base import CompiledGrammar, Finding, Packed, Report
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_MAGIC = b"structspec grammar 1\n"
_LIBRARIES = ("llguidance", "xgrammar", "outlines-core", "lm-format-enforcer", "interegular")


class MemoryCache:
    """The grammars last used, within a number of them and of their bytes; not thread-safe."""

    def __init__(self, max_grammars: int, max_bytes: int) -> None:
        self._max_grammars = max_grammars
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, tuple[Future[CompiledGrammar], int]] = OrderedDict()
        self.num_bytes = 0

    def get(self, key: str) -> Future[CompiledGrammar] | None:
        """What is kept under this key, now the last used."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: str, future: Future[CompiledGrammar], num_bytes: int) -> None:
        """Keep it, and forget those unused the longest until all fit; one too large is not kept."""
        if num_bytes > self._max_bytes:
            return
        self._kept[key] = future, num_bytes
        self.num_bytes += num_bytes
        while len(self._kept) > self._max_grammars or self.num_bytes > self._max_bytes:
            _, (_, num_freed) = self._kept.popitem(last=False)
            self.num_bytes -= num_freed


class DiskCache:
    """Packed grammars in a folder that processes may share; a bad entry counts as none.

    An entry's name says what it was made from: constraint, vocabulary, library versions and the
    code that lowers. Nothing is ever deleted; empty the folder when it is too large.
    """

    def __init__(self, folder: Path, vocabulary: Vocabulary) -> None:
        self._folder = folder
        self._vocabulary = vocabulary

    def read(self, library: str, digest: str) -> Packed | None:
        """The entry, if there is a whole one."""
        try:
            content = self._file(library, digest).read_bytes()
        except OSError:
            return None
        checksum, payload = content[len(_MAGIC) :][:32], content[len(_MAGIC) + 32 :]
        if not content.startswith(_MAGIC) or hashlib.sha256(payload).digest() != checksum:
            return None
        return _from_bytes(payload)

    def write(self, library: str, digest: str, packed: Packed) -> None:
        """Put an entry in place in one step; a folder that cannot be written is only logged."""
        payload = _to_bytes(packed)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(file.name, self._file(library, digest))
        except OSError as error:
            logger.warning("a compiled grammar could not be kept in %s: %s", self._folder, error)

    def _file(self, library: str, digest: str) -> Path:
        parts = (library, digest, self._vocabulary.fingerprint, _code_fingerprint())
        return self._folder / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()}.grammar"


def _to_bytes(packed: Packed) -> bytes:
    header = {"report": asdict(packed.report), "compile_ms": packed.compile_ms}
    return json.dumps(header).encode() + b"\n" + packed.data


def _from_bytes(payload: bytes) -> Packed:
    header, _, data = payload.partition(b"\n")
    fields = json.loads(header)
    report = fields["report"]
    for name in ("enforced", "approximated", "refused"):
        report[name] = tuple(Finding(**finding) for finding in report[name])
    report["changes"] = tuple(report["changes"])
    return Packed(Report(**report), data, fields["compile_ms"])


@cache
def _code_fingerprint() -> str:
    """Changes whenever a library, or our own code that lowers constraints, does."""
    digest = hashlib.sha256()
    for library in _LIBRARIES:
        try:
            digest.update(f"{library} {version(library)}\n".encode())
        except PackageNotFoundError:
            digest.update(f"{library} is not installed\n".encode())
    for file in sorted((Path(__file__).parent / "grammars").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
