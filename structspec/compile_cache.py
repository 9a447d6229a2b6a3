"""Where compiled grammars are kept: in memory by use and size, on disk by what they are made of."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import NamedTemporaryFile

from structspec.grammars.base import CompiledGrammar, Finding, Packed, Report
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_MAGIC = b"structspec grammar 1\n"
_FINISHED, _UNFINISHED = ".grammar", ".grammar-part"
_NUM_PARTS = 32  # of a budget: so much may be written between two looks at the folder
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
        _, num_replaced = self._kept.pop(key, (None, 0))
        self.num_bytes -= num_replaced
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
    code that lowers. Those unused the longest are deleted where all together take more than
    `max_bytes`: looked after in the first write, and again whenever as much as was left, or a part
    of `max_bytes`, has been written, since other processes write as well. Other files stay.
    """

    def __init__(self, folder: Path, vocabulary: Vocabulary, max_bytes: int) -> None:
        self._folder = folder
        self._vocabulary = vocabulary
        self._max_bytes = max_bytes
        self._unwatched_bytes = 0  # to be written before the folder is looked at again
        self._is_warned = False

    def read(self, library: str, digest: str) -> Packed | None:
        """The entry, if there is a whole one; it is the last used now."""
        file = self._file(library, digest)
        try:
            content = file.read_bytes()
        except OSError:
            return None
        checksum, payload = content[len(_MAGIC) :][:32], content[len(_MAGIC) + 32 :]
        if not content.startswith(_MAGIC) or hashlib.sha256(payload).digest() != checksum:
            return None
        with suppress(OSError):  # deleted by another process, or not ours to touch
            os.utime(file)
        return _from_bytes(payload)

    def write(self, library: str, digest: str, packed: Packed) -> None:
        """Put an entry in place in one step; a folder that cannot be written is only logged."""
        payload = _to_bytes(packed)
        content = _MAGIC + hashlib.sha256(payload).digest() + payload
        if len(content) > self._max_bytes:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._put(self._file(library, digest), content)
            self._unwatched_bytes -= len(content)
            if self._unwatched_bytes <= 0:
                num_bytes = shrink(self._folder, self._max_bytes)
                part = self._max_bytes // _NUM_PARTS
                self._unwatched_bytes = min(self._max_bytes - num_bytes, part)
        except OSError as error:
            if not self._is_warned:  # once, not with every compile
                logger.warning("compiled grammars cannot be kept in %s: %s", self._folder, error)
            self._is_warned = True

    def _put(self, target: Path, content: bytes) -> None:
        with NamedTemporaryFile(dir=self._folder, suffix=_UNFINISHED, delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.replace(file.name, target)
            except OSError:
                with suppress(OSError):
                    os.unlink(file.name)
                raise

    def _file(self, library: str, digest: str) -> Path:
        parts = (library, digest, self._vocabulary.fingerprint, _code_fingerprint())
        return self._folder / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()}{_FINISHED}"


def shrink(folder: Path, max_bytes: int) -> int:
    """Delete the entries unused the longest until all fit; how many bytes they take then.

    Safe beside other processes: what they delete in between is gone as well.
    """
    entries: list[tuple[int, int, str]] = []
    for entry in os.scandir(folder):
        if entry.name.endswith((_FINISHED, _UNFINISHED)) and not entry.is_dir():
            with suppress(FileNotFoundError):
                status = entry.stat()
                entries.append((status.st_mtime_ns, status.st_size, entry.path))
    num_bytes = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if num_bytes <= max_bytes:
            break
        with suppress(FileNotFoundError):
            os.unlink(path)
        num_bytes -= size
    return num_bytes


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
