"""Whatever a command is given to read or to write to: it works, or says why in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from structspec.cli import main

ROOT = Path(__file__).resolve().parents[1]
ROWS = json.dumps({"id": "a", "schema": {}, "tests": [{"data": 1, "valid": True}]})
CONTENTS = {
    "empty": b"",
    "no UTF-8": b"\xff\xfe{",
    "nested deeply": b"[" * 100_000,
    "with a NUL": b"\0",
}
READERS = {
    "explain": ["explain"],
    "explain --grammar": ["explain", "--grammar"],
    "explain --tokenizer": ["explain", "{}", "--tokenizer"],
    "generate --schema": ["generate", "--prompt", "x", "--schema"],
    "generate --grammar": ["generate", "--prompt", "x", "--grammar"],
    "bench grammars": ["bench", "grammars"],
    "bench grammars --vocab": ["bench", "grammars", "ROWS", "--vocab"],
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A file of each content, and what is no file."""
    made = {name: tmp_path / f"{name}.json" for name in CONTENTS}
    for name, path in made.items():
        path.write_bytes(CONTENTS[name])
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "ROWS").write_text(ROWS)
    missing = {name: tmp_path / name for name in ("folder", "loop", "missing")}
    return made | missing | {"a long name": tmp_path / ("x" * 5000)}


def assert_one_line(capsys: pytest.CaptureFixture[str], status: int) -> None:
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.startswith("structspec: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", [*CONTENTS, "folder", "loop", "missing", "a long name"])
def test_a_file_that_cannot_be_used_is_named_in_one_line(files, capsys, reader, name):
    arguments = [str(files["folder"].parent / a) if a == "ROWS" else a for a in READERS[reader]]
    status = main([*arguments, str(files[name])])
    assert_one_line(capsys, status)


NO_TYPES = [":x", "x:", ":", "a:b:c", "..:x", ".x:y", "json.:x", "json:", "json:no", "a b:c", "1:2"]


@pytest.mark.parametrize("text", [*NO_TYPES, "[1]", '"x"', "null", "1", " ", "\0", "C:\\a.json"])
def test_what_is_neither_a_schema_nor_a_type_is_one_line(capsys, text):
    assert_one_line(capsys, main(["explain", text]))


@pytest.mark.parametrize("body", ["1 +", "raise ValueError('no')", "import nonesuch", "1 / 0"])
def test_a_module_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch, capsys, body):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"broken_{abs(hash(body))}"
    Path(f"{name}.py").write_text(body)
    assert_one_line(capsys, main(["explain", f"{name}:Name"]))


@pytest.mark.parametrize(
    "option",
    ["--workers 0", "--workers -1", "--sample 0", "--memory 0", "--timeout 0"]
    + ["--timeout nan", "--timeout inf"],
)
def test_a_number_that_nothing_can_be_done_with_is_one_line(files, capsys, option):
    rows = files["folder"].parent / "ROWS"
    assert_one_line(capsys, main(["bench", "grammars", str(rows), *option.split()]))


def run(arguments: list[str], redirection: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """In a process of its own, with the shell's redirection."""
    program = f'exec "$@" {redirection}'
    done = subprocess.run(
        ["sh", "-c", program, "sh", sys.executable, "-m", "structspec", *arguments],
        input=stdin,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "arguments", [["explain", "-"], ["generate", "--prompt-file", "-", "--regex", "a"]], ids="".join
)
def test_a_closed_stdin_is_one_line(arguments):
    assert run(arguments, "<&-") == (2, "", "structspec: cannot read -: stdin is closed\n")


def test_stdin_that_is_not_utf8_is_one_line():
    expected = (2, "", "structspec: cannot read -: it is not UTF-8 text\n")
    assert run(["explain", "-"], "", b"\xff\xfe{") == expected


def test_a_byte_order_mark_on_stdin_is_passed_over():
    status, printed, _ = run(["explain", "-", "--json"], "", b"\xef\xbb\xbf{}")
    assert status == 0
    assert json.loads(printed)["verdict"] == "exact"


def test_a_closed_stdout_is_one_line():
    expected = (2, "", "structspec: stdout is closed: the result has nowhere to go\n")
    assert run(["explain", "{}"], ">&-") == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
@pytest.mark.parametrize("arguments", [["explain", "{}"], ["explain", "{}", "--json"]], ids="".join)
def test_a_full_stdout_is_one_line_and_status_1(arguments):
    status, _, complaint = run(arguments, ">/dev/full")
    assert status == 1
    assert complaint.startswith("structspec: ") and complaint.count("\n") == 1


def test_complaints_do_not_go_to_stdout_where_stderr_is_closed():
    assert run(["explain", "{"], "2>&-") == (2, "", "")
    status, printed, _ = run(["explain", "{}"], "2>&-")
    assert (status, printed.split(":")[0]) == (0, "exact")
