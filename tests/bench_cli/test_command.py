"""`structspec bench grammars` from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from structspec.bench.vocabularies import load_vocabulary
from structspec.cli import main
from structspec.vocabulary import Vocabulary

ROWS = [
    {
        "id": "held",
        "source": "JME",
        "features": ["type", "minimum"],
        "schema": {"type": "integer", "minimum": 10},
        "tests": [
            {"data": 12, "valid": True, "rs_format": True},
            {"data": 3, "valid": False, "rs_format": False},
        ],
    },
    {
        "id": "exclusive",
        "source": "Handwritten",
        "features": ["oneOf"],
        "schema": {"oneOf": [{"type": "integer"}, {"minimum": 10}]},
        "tests": [{"data": 12, "valid": False, "rs_format": False}],
    },
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(data: Path, *options: str) -> int:
    return main(["bench", "grammars", str(data), "--workers", "1", *options])


def test_json_has_every_column_and_failures_name_what_is_wrong(data, tmp_path, capsys):
    failures = tmp_path / "failures.jsonl"
    columns = ("--backend", "router", "--backend", "llguidance")
    assert run(data, *columns, "--json", "--failures", str(failures)) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["router", "llguidance"]
    for column in found.values():
        assert (column["tested"], column["right"]) == (1, 1)
        assert (column["under"], column["crash"]) == (0, 0)
        assert column["all"]["tested"] == 2
        assert column["masks"] > 0
    written = [json.loads(line) for line in failures.read_text().splitlines()]
    bare = [failure for failure in written if failure["column"] == "llguidance"]
    assert [(failure["id"], failure["verdict"]) for failure in bare] == [("exclusive", "refused")]
    assert bare[0]["schema"] == ROWS[1]["schema"]
    assert "oneOf" in bare[0]["message"]


def test_tables_are_printed_and_only_picks_one_schema(data, capsys):
    assert run(data, "--backend", "llguidance", "--only", "held") == 0
    printed = capsys.readouterr().out
    assert "100.00" in printed
    assert "JME" in printed and "Handwritten" not in printed


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--backend", "nonesuch"), "there is no backend 'nonesuch'"),
        (("--only", "nothing"), "no schema is left"),
        (("--vocab", "nowhere/tokenizer.json"), "nowhere"),
    ],
)
def test_mistake_in_the_call_is_named_before_anything_runs(data, capsys, options, reason):
    assert run(data, *options) == 2
    assert reason in capsys.readouterr().err


def test_byte_vocabulary_is_the_default_one():
    vocabulary: Any = load_vocabulary("bytes")
    assert vocabulary.token_bytes == Vocabulary.bytes().token_bytes
