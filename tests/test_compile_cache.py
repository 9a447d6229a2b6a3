"""Compiled grammars on disk: found again, shared, and ignored where they are not whole."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from structspec import compile_cache
from structspec.compile_cache import DiskCache
from structspec.compiler import GrammarCompiler
from structspec.constraint import Choice, Constraint, JsonSchema, Regex
from structspec.errors import CompileTimeout
from structspec.grammars.base import Finding, Packed, Report
from structspec.grammars.llguidance import LLGuidanceBackend
from structspec.vocabulary import Vocabulary

PACKED = Packed(
    Report(
        "llguidance",
        enforced=(Finding("#/a", "type"),),
        approximated=(Finding("#", "format", "nearly"),),
        changes=("closed",),
        reason="because",
    ),
    b"\x00grammar\n\xff",
    1.5,
)


@pytest.fixture
def count(monkeypatch):
    """How often llguidance compiled."""
    calls: list[Constraint] = []
    compile_once = LLGuidanceBackend.compile

    def counted(self, constraint):
        calls.append(constraint)
        return compile_once(self, constraint)

    monkeypatch.setattr(LLGuidanceBackend, "compile", counted)
    return calls


def compile_fresh(folder, constraint, vocabulary=None):
    """With a compiler that remembers nothing but what is in the folder."""
    compiler = GrammarCompiler(vocabulary or Vocabulary.bytes(), cache_dir=folder)
    try:
        return compiler.submit(constraint).result(60)
    finally:
        compiler.close()


def texts(grammar) -> bytes:
    return grammar.matcher().forced(100)


def test_what_is_written_is_read_back_to_the_last_byte(tmp_path):
    cache = DiskCache(tmp_path / "new" / "folder", Vocabulary.bytes())
    assert cache.read("llguidance", "key") is None
    cache.write("llguidance", "key", PACKED)
    assert cache.read("llguidance", "key") == PACKED
    assert cache.read("xgrammar", "key") is None
    assert cache.read("llguidance", "other") is None


def test_another_vocabulary_or_other_code_finds_nothing(tmp_path, monkeypatch):
    DiskCache(tmp_path, Vocabulary.bytes()).write("llguidance", "key", PACKED)
    tokens = (*Vocabulary.bytes().token_bytes, b"ab")
    other = Vocabulary(tokens, (256,), lambda text: [])
    assert DiskCache(tmp_path, other).read("llguidance", "key") is None
    monkeypatch.setattr(compile_cache, "_code_fingerprint", lambda: "another version")
    assert DiskCache(tmp_path, Vocabulary.bytes()).read("llguidance", "key") is None


@pytest.mark.parametrize("constraint", [JsonSchema({"const": "a"}), Regex("ab"), Choice(("x",))])
def test_a_second_compiler_finds_what_the_first_compiled(tmp_path, count, constraint):
    first, second = (compile_fresh(tmp_path, constraint) for _ in range(2))
    assert len(count) == 1
    assert texts(first) == texts(second) != b""
    assert first.report == second.report
    assert first.compile_ms == second.compile_ms


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:-1] + b"?"])
def test_a_damaged_entry_is_ignored_and_replaced(tmp_path, count, damage):
    compile_fresh(tmp_path, Regex("ab"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    for _ in range(2):
        assert texts(compile_fresh(tmp_path, Regex("ab"))) == b"ab"
        assert len(count) == 2  # the second time from what replaced it


def test_a_whole_entry_that_is_no_grammar_is_ignored_and_replaced(tmp_path, count, caplog):
    vocabulary = Vocabulary.bytes()
    compile_fresh(tmp_path, Regex("ab"))
    (file,) = tmp_path.iterdir()
    cache = DiskCache(tmp_path, vocabulary)
    cache.write("llguidance", "other", PACKED)
    (other,) = set(tmp_path.iterdir()) - {file}
    other.replace(file)
    with caplog.at_level(logging.WARNING):
        assert texts(compile_fresh(tmp_path, Regex("ab"))) == b"ab"
    assert "compiled anew" in caplog.text
    assert len(count) == 2


def test_a_folder_that_cannot_be_written_is_only_logged(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert texts(compile_fresh(tmp_path / "file", Regex("ab"))) == b"ab"
    assert "could not be kept" in caplog.text


def test_a_time_out_is_not_kept(tmp_path):
    slow = Choice(tuple(f"{number} of many" for number in range(5000)))
    compiler = GrammarCompiler(Vocabulary.bytes(), timeout_s=0.001, cache_dir=tmp_path)
    try:
        with pytest.raises(CompileTimeout):
            compiler.submit(slow).result(60)
    finally:
        compiler.close()
    assert not list(tmp_path.iterdir())
    assert compile_fresh(tmp_path, slow).matcher().accept(ord("7"))


def test_several_processes_may_share_a_folder(tmp_path):
    program = """
import sys
from structspec import Choice, GrammarCompiler, Vocabulary
compiler = GrammarCompiler(Vocabulary.bytes(), cache_dir=sys.argv[1])
for number in range(40):
    assert compiler.submit(Choice((f"text {number}",))).result(60).matcher().forced(9)
compiler.close()
"""
    processes = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 40


def test_the_fingerprint_of_a_vocabulary_tells_tokens_stops_and_holes_apart():
    def encode(text: str) -> list[int]:
        return []

    vocabularies = [
        Vocabulary((b"ab", b"c", None), (2,), encode),
        Vocabulary((b"a", b"bc", None), (2,), encode),
        Vocabulary((b"ab", b"c", None, None), (2,), encode),
        Vocabulary((b"ab", b"c", None, None), (3,), encode),
        Vocabulary((b"ab", None, b"c"), (1,), encode),
    ]
    assert len({vocabulary.fingerprint for vocabulary in vocabularies}) == 5
    assert Vocabulary.bytes().fingerprint == Vocabulary.bytes().fingerprint
