"""Benchmark rows in their three formats."""

from __future__ import annotations

import gzip
import json
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


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "as JSON lines"), ("", "no rows"), ('{"id": 1}', "no known format"), ("[]", "no known")],
)
def test_what_is_no_benchmark_is_named(tmp_path, content, reason):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=reason):
        read_cases(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match="nowhere"):
        read_cases(tmp_path / "nowhere.jsonl")
