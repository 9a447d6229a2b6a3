"""Benchmark rows in their three formats."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from structspec.bench.cases import Case, read_cases
from structspec.constraint import Grammar, JsonSchema, Regex
from structspec.errors import InvalidRequest


def read(folder: Path, *rows: dict[str, Any]) -> list[Case]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_cases(path)


def row(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "schema": {}, "tests": []} | more


def test_benchmark_row_is_scored_open_and_spaced(tmp_path):
    tests = [{"data": {"a": 1}, "valid": True, "rs_format": True}]
    (one,) = read(tmp_path, row("a", source="Kubernetes", features=["type"], tests=tests))
    assert (one.id, one.source, one.keywords) == ("a", "Kubernetes", ("type",))
    assert one.is_real_world
    assert one.constraint() == JsonSchema({}, style="spaced", closed=False)
    assert [(i.data, i.is_valid) for i in one.instances] == [({"a": 1}, True)]


@pytest.mark.parametrize("source", ["Synthesized", "Handwritten"])
def test_made_up_sources_are_not_real_world(tmp_path, source):
    (one,) = read(tmp_path, row("a", source=source))
    assert not one.is_real_world


def test_instance_whose_labels_disagree_is_left_out_and_counted(tmp_path):
    tests = [
        {"data": 1, "valid": True, "rs_format": False},
        {"data": 2, "valid": False, "rs_format": False},
        {"data": 3, "valid": True},
    ]
    (one,) = read(tmp_path, row("a", source="JME", tests=tests))
    assert [i.data for i in one.instances] == [2, 3]
    assert one.num_doubtful == 1


def test_test_suite_row_is_grouped_by_its_keyword_file(tmp_path):
    (one,) = read(tmp_path, row("draft7/not#0", file="not"))
    assert (one.source, one.keywords) == ("not", ("not",))


def test_draft_that_only_the_row_knows_is_told_to_the_schema(tmp_path):
    old, new, free = read(
        tmp_path,
        row("a", file="ref", draft="draft7", schema={"type": "null"}),
        row("b", file="ref", draft="draft7", schema={"$schema": "x"}),
        row("c", file="ref", draft="draft7", schema=True),
    )
    assert old.body == {"$schema": "http://json-schema.org/draft-07/schema#", "type": "null"}
    assert (new.body, free.body) == ({"$schema": "x"}, True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("regex", Regex("a+")),
        ("lark", Grammar("a+", dialect="lark")),
        ("ebnf", Grammar("a+", dialect="ebnf")),
    ],
)
def test_probe_of_text_becomes_its_constraint(tmp_path, kind, expected):
    probe = {"id": "a", "topic": "regex", "kind": kind, "grammar": "a+"}
    (one,) = read(tmp_path, probe | {"tests": [{"text": "aa", "valid": True}]})
    assert one.constraint() == expected
    assert one.instances[0].is_text and one.instances[0].data == "aa"


def test_schema_probe_with_texts_leaves_white_space_free(tmp_path):
    tests = [{"text": '{"a":1}', "valid": True}]
    (one,) = read(tmp_path, row("a", topic="const", kind="json_schema", tests=tests))
    assert one.constraint() == JsonSchema({}, style="flexible", closed=False)


def test_gzip_is_read_and_a_sample_is_the_same_whatever_the_order(tmp_path):
    rows = [row(str(number), source="JME") for number in range(50)]
    sampled = []
    for name, ordered in (("a", rows), ("b", rows[::-1])):
        path = tmp_path / f"{name}.jsonl.gz"
        with gzip.open(path, "wt") as lines:
            lines.writelines(json.dumps(one) + "\n" for one in ordered)
        sampled.append([case.id for case in read_cases(path, 7)])
    assert sampled[0] == sampled[1]
    assert len(sampled[0]) == 7


ROW = {"id": "a", "schema": {}, "tests": [{"data": 1, "valid": True}]}
NO_ROWS = {
    "{": "line 2: Expecting property name",
    "[" * 100_000: "line 2: maximum recursion depth",
    "1" * 5000: "line 2: Exceeds the limit",
    '{"id": 1}': "line 2: 'tests' is missing",
    "[]": "line 2: a row: dict is expected, not list",
} | {
    json.dumps(ROW | change): reason
    for change, reason in [
        ({"id": [1]}, "line 2: id: str is expected"),
        ({"source": ["a"]}, "source, file and topic: str is expected"),
        ({"features": 5}, "features: list is expected"),
        ({"kind": "none"}, "kind is one of json_schema, regex, lark, ebnf, not 'none'"),
        ({"kind": "lark", "grammar": 5}, "grammar: str is expected"),
        ({"kind": "lark"}, "'grammar' is missing"),
        ({"schema": "{}"}, "schema: dict | bool is expected"),
        ({"tests": {}}, "tests: list is expected"),
        ({"tests": ["a"]}, "a test: dict is expected"),
        ({"tests": [{"data": 1}]}, "'valid' is missing"),
        ({"tests": [{"data": 1, "valid": 1}]}, "valid: bool is expected"),
        ({"tests": [{"valid": True}]}, "neither data nor text"),
        ({"tests": [{"text": 5, "valid": True}]}, "text: str is expected"),
    ]
}


@pytest.mark.parametrize("line", NO_ROWS, ids=lambda line: line[:40])
def test_a_line_that_is_no_row_is_named_with_its_number(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(InvalidRequest, match=re.escape(NO_ROWS[line])):
        read_cases(path)


@pytest.mark.parametrize("content", [b"\xff", b"\x1f\x8b\x08\x00rubbish", b"", b"{}"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_file_that_is_no_benchmark_is_named(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=name):
        read_cases(path)


def test_json_inside_a_grammar_may_have_any_white_space_where_the_row_gives_text(tmp_path):
    probe = row("a", kind="lark", grammar='start: "<" %json {"type": "null"}\n')
    (one,) = read(tmp_path, probe)
    assert one.constraint() == Grammar(
        'start: "<" %json {"x-guidance": {}, "type": "null"}\n', dialect="lark"
    )


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match="nowhere"):
        read_cases(tmp_path / "nowhere.jsonl")
