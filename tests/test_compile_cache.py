"""Compiled grammars on disk: found again, shared, and ignored where they are not whole."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import compile_cache
from structspec.compile_cache import DiskCache, MemoryCache
from structspec.compiler import GrammarCompiler
from structspec.constraint import Choice, Constraint, JsonSchema, Regex
from structspec.errors import CompileTimeout, InvalidRequest
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


def disk(folder, vocabulary=None, max_bytes=2**20) -> DiskCache:
    return DiskCache(folder, vocabulary or Vocabulary.bytes(), max_bytes)


def texts(grammar) -> bytes:
    return grammar.matcher().forced(100)


def test_what_is_written_is_read_back_to_the_last_byte(tmp_path):
    cache = disk(tmp_path / "new" / "folder")
    assert cache.read("llguidance", "key") is None
    cache.write("llguidance", "key", PACKED)
    assert cache.read("llguidance", "key") == PACKED
    assert cache.read("xgrammar", "key") is None
    assert cache.read("llguidance", "other") is None


def test_another_vocabulary_or_other_code_finds_nothing(tmp_path, monkeypatch):
    disk(tmp_path).write("llguidance", "key", PACKED)
    tokens = (*Vocabulary.bytes().token_bytes, b"ab")
    other = Vocabulary(tokens, (256,), lambda text: [])
    assert disk(tmp_path, other).read("llguidance", "key") is None
    monkeypatch.setattr(compile_cache, "_code_fingerprint", lambda: "another version")
    assert disk(tmp_path).read("llguidance", "key") is None


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
    compile_fresh(tmp_path, Regex("ab"))
    (file,) = tmp_path.iterdir()
    cache = disk(tmp_path)
    cache.write("llguidance", "other", PACKED)
    (other,) = set(tmp_path.iterdir()) - {file}
    other.replace(file)
    with caplog.at_level(logging.WARNING):
        assert texts(compile_fresh(tmp_path, Regex("ab"))) == b"ab"
    assert "compiled anew" in caplog.text
    assert len(count) == 2


def test_a_folder_that_cannot_be_written_is_only_logged_and_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert texts(compile_fresh(tmp_path / "file", Regex("ab"))) == b"ab"
        cache = disk(tmp_path / "file")
        cache.write("llguidance", "a", PACKED)
        cache.write("llguidance", "b", PACKED)
    assert len(caplog.records) == 2  # one of each cache
    assert "cannot be kept" in caplog.text


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


ENTRY = 1000  # bytes, and some more for the report


def sized(byte: bytes = b"x") -> Packed:
    return Packed(Report("llguidance"), byte * ENTRY, 1.0)


def age(folder, seconds: float) -> None:
    """Let all that is there be unused for so much longer."""
    for file in folder.iterdir():
        past = file.stat().st_mtime - seconds
        os.utime(file, (past, past))


def kept(cache: DiskCache, names: str) -> str:
    """Those of the entries that are there; looking is no use of them."""
    return "".join(name for name in names if cache._file("llguidance", name).exists())


def test_entries_unused_the_longest_are_deleted_when_a_write_goes_over_the_budget(tmp_path):
    cache = disk(tmp_path, max_bytes=4 * ENTRY)
    for name in "abc":
        cache.write("llguidance", name, sized())
        age(tmp_path, 60)
    assert cache.read("llguidance", "a") == sized()
    cache.write("llguidance", "d", sized())
    assert kept(cache, "abcd") == "acd"
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 4 * ENTRY


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    steps=st.lists(st.tuples(st.sampled_from("rw"), st.sampled_from("abcdef")), max_size=25),
    room=st.integers(0, 5),
)
def test_what_is_kept_is_what_was_last_used_and_within_the_budget(steps, room):
    """The folder against a list: most recently used last."""
    with tempfile.TemporaryDirectory() as folder:
        cache = disk(Path(folder), max_bytes=room * 2 * ENTRY)
        used: list[str] = []
        for kind, name in steps:
            age(Path(folder), 60)
            if kind == "r":
                assert (cache.read("llguidance", name) is not None) == (name in used)
                used += [used.pop(used.index(name))] if name in used else []
            else:
                cache.write("llguidance", name, Packed(Report("x"), b"x" * (2 * ENTRY - 300), 1.0))
                used = [*(other for other in used if other != name), name][-room:] if room else []
            assert kept(cache, "abcdef") == "".join(sorted(used))


def test_an_entry_larger_than_the_budget_is_not_written_and_displaces_nothing(tmp_path):
    cache = disk(tmp_path, max_bytes=2 * ENTRY)
    cache.write("llguidance", "a", sized())
    cache.write("llguidance", "b", Packed(Report("llguidance"), b"x" * 3 * ENTRY, 1.0))
    assert kept(cache, "ab") == "a"


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12))), st.integers(0, 3), st.just(10)
)
def test_the_bytes_in_memory_are_those_of_what_is_kept(puts, max_grammars, max_bytes):
    """The cache against a list: most recently used last."""
    cache = MemoryCache(max_grammars, max_bytes)
    kept: list[tuple[str, int]] = []
    for name, num_bytes in puts:
        cache.put(name, Future(), num_bytes)
        kept = [one for one in kept if one[0] != name]
        if num_bytes <= max_bytes:
            kept.append((name, num_bytes))
        while len(kept) > max_grammars or sum(size for _, size in kept) > max_bytes:
            del kept[0]
        assert cache.num_bytes == sum(size for _, size in kept)
        assert [name for name in "abc" if name in cache._kept] == sorted(name for name, _ in kept)


@pytest.mark.parametrize("suffix", [".grammar", ".grammar-part"])
def test_a_folder_that_is_named_like_an_entry_stays_and_stops_nothing(tmp_path, suffix):
    folder = tmp_path / f"x{suffix}"
    folder.mkdir()
    age(tmp_path, 60)
    cache = disk(tmp_path, max_bytes=2 * ENTRY)
    for name in "abcd":
        cache.write("llguidance", name, sized())
        age(tmp_path, 60)
    assert "d" in kept(cache, "abcd") != "abcd"
    assert folder.is_dir()


def test_other_files_in_the_folder_stay_and_do_not_count(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"x" * 10 * ENTRY)
    age(tmp_path, 60)
    cache = disk(tmp_path, max_bytes=2 * ENTRY)
    cache.write("llguidance", "a", sized())
    assert kept(cache, "a") == "a"
    assert (tmp_path / "notes.txt").exists()


def test_what_a_process_left_half_written_goes_with_the_rest(tmp_path):
    (tmp_path / f"x{compile_cache._UNFINISHED}").write_bytes(b"x" * ENTRY)
    age(tmp_path, 60)
    disk(tmp_path, max_bytes=2 * ENTRY).write("llguidance", "a", sized())
    assert [file.suffix for file in tmp_path.iterdir()] == [".grammar"]


def test_what_another_process_deletes_meanwhile_is_gone_and_no_error(tmp_path, monkeypatch):
    cache = disk(tmp_path, max_bytes=2 * ENTRY)
    cache.write("llguidance", "a", sized())
    age(tmp_path, 60)
    unlink = os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: (unlink(path), unlink(path)))
    cache.write("llguidance", "b", sized())
    monkeypatch.undo()
    assert kept(cache, "ab") == "b"
    touch = os.utime
    monkeypatch.setattr(os, "utime", lambda path: (unlink(path), touch(path)))
    assert cache.read("llguidance", "b") == sized(), "deleted between reading and touching"
    monkeypatch.undo()
    assert cache.read("llguidance", "b") is None


def test_a_folder_is_looked_at_only_now_and_then(tmp_path, monkeypatch):
    looks: list[Path] = []
    shrink = compile_cache.shrink
    monkeypatch.setattr(
        compile_cache,
        "shrink",
        lambda folder, size: (looks.append(folder), shrink(folder, size))[1],
    )
    cache = disk(tmp_path, max_bytes=32 * 10 * 2 * ENTRY)  # ten entries of 2000 bytes a part
    for number in range(40):
        cache.write("llguidance", str(number), sized())
    assert 2 <= len(looks) <= 5


def test_several_processes_stay_within_the_budget_of_a_shared_folder(tmp_path):
    program = """
import sys
from structspec import Choice, GrammarCompiler, Vocabulary
compiler = GrammarCompiler(Vocabulary.bytes(), cache_dir=sys.argv[1], max_cache_dir_bytes=8000)
for number in range(30):
    assert compiler.submit(Choice((f"text {number}",))).result(60).matcher().forced(9)
compiler.close()
"""
    processes = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    disk(tmp_path, max_bytes=8000).write("llguidance", "last", PACKED)
    files = list(tmp_path.iterdir())
    assert sum(file.stat().st_size for file in files) <= 8000
    assert 1 < len(files) < 30


@pytest.mark.parametrize("wrong", [{"max_cache_dir_bytes": -1}, {"cache_dir": ""}])
def test_a_wrong_budget_or_folder_is_named(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        GrammarCompiler(Vocabulary.bytes(), **wrong)
