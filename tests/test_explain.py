"""`explain`: every keyword is accounted for, in Python, as a table and as JSON."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

import structspec
from structspec import (
    Choice,
    Grammar,
    GrammarError,
    InvalidRequest,
    JsonSchema,
    Regex,
    Vocabulary,
)
from structspec.cli import main
from structspec.explanation import Explanation

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0}},
    "required": ["x"],
}
UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
EBNF = Grammar('root ::= "a"', "ebnf")


class Point(BaseModel):
    x: int


def keywords_of(explanation: Explanation) -> set[tuple[str, str]]:
    report = explanation.report
    found = report.enforced + report.approximated + report.refused
    return {(one.pointer, one.keyword) for one in found}


# in Python


@pytest.mark.parametrize(
    ("constraint", "kind"),
    [
        (POINT, "JSON schema"),
        (json.dumps(POINT), "JSON schema"),
        (JsonSchema(POINT), "JSON schema"),
        (Point, "JSON schema"),
        (list[int], "JSON schema"),
        (Regex("a+"), "regex"),
        (Choice(("a", "b")), "choice"),
        (Grammar('start: "a"'), "grammar"),
    ],
    ids=str,
)
def test_constraints_and_all_that_schema_takes_are_explained(constraint: Any, kind: str) -> None:
    explanation = structspec.explain(constraint)
    assert (explanation.kind, explanation.verdict) == (kind, "exact")
    assert explanation.report.enforced
    assert explanation.compile_ms is not None and explanation.compile_ms > 0
    assert explanation.num_bytes is not None and explanation.num_bytes > 0


def test_each_keyword_is_listed_with_its_place() -> None:
    listed = keywords_of(structspec.explain(POINT))
    assert {("#", "properties"), ("#", "required"), ("#/properties/x", "minimum")} <= listed


def test_what_is_validated_afterwards_says_so_and_why() -> None:
    explanation = structspec.explain(UNIQUE)
    assert explanation.verdict == "approximated"
    assert "finished text is validated" in explanation.summary
    finding = explanation.report.approximated[0]
    assert (finding.pointer, finding.keyword) == ("#", "uniqueItems")
    assert finding.reason
    assert finding.reason in str(explanation)


def test_what_a_python_type_checks_itself_is_validated_afterwards() -> None:
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def check(cls, number: int) -> int:
            assert number % 2 == 0
            return number

    explanation = structspec.explain(Even)
    assert explanation.verdict == "approximated"
    assert re.search("validated afterwards:\n  #/properties/number  .*Even.check", str(explanation))


def test_a_refusal_is_explained_rather_than_raised() -> None:
    explanation = structspec.explain(EBNF, backend="llguidance")
    assert explanation.verdict == "refused"
    assert explanation.compile_ms is None and explanation.num_bytes is None
    assert "EBNF" in explanation.report.refused[0].reason
    assert "UnsupportedConstraint" in explanation.summary


def test_closing_is_the_default_and_told_as_a_change() -> None:
    assert structspec.explain(POINT).report.changes
    assert not structspec.explain(POINT, closed=False).report.changes
    assert structspec.explain(JsonSchema(POINT, closed=False)).report.changes == ()


def test_a_wrong_constraint_is_a_grammar_error_with_its_place() -> None:
    with pytest.raises(GrammarError) as caught:
        structspec.explain({"properties": {"x": {"type": "int"}}})
    assert caught.value.pointer == "#/properties/x/type"


@pytest.mark.parametrize(
    ("constraint", "options", "says"),
    [
        (Regex("a"), {"style": "compact"}, "style= goes with a JSON schema"),
        (POINT, {"style": "loose"}, "style must be one of"),
        (POINT, {"backend": "none"}, "backend must be one of"),
        (Regex("a"), {"backend": "none"}, "no backend 'none'"),
        (3.5, {}, "cannot be used"),
        (None, {}, "nothing to explain"),
    ],
)
def test_an_impossible_question_is_an_invalid_request(
    constraint: Any, options: Any, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        structspec.explain(constraint, **options)


def test_the_vocabulary_is_the_models_where_one_is_given() -> None:
    twice = Vocabulary((*Vocabulary.bytes().token_bytes, b"ab"), (256,), lambda text: [])
    assert "258 tokens" in structspec.explain(Regex("(ab)+"), vocabulary=twice).cost
    assert "bytes" in structspec.explain(Regex("(ab)+")).cost


def test_the_plain_values_hold_all_findings_and_survive_json() -> None:
    explanation = structspec.explain(UNIQUE)
    told = json.loads(json.dumps(explanation.to_dict()))
    listed = {
        (one["pointer"], one["keyword"])
        for verdict in ("enforced", "approximated", "refused")
        for one in told[verdict]
    }
    assert listed == keywords_of(explanation)
    assert (told["verdict"], told["exact"], told["vocab_size"]) == ("approximated", False, 257)
    assert told["backend"] == explanation.report.backend


# on the command line


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_table_shows_every_place_and_keyword_within_its_width(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "a_name_that_is_rather_long_" * 3
    schema = {"type": "object", "properties": {name: UNIQUE, "b": {"type": "null"}}}
    assert main(["explain", json.dumps(schema)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("approximated: ")
    assert all(len(line) <= columns for line in printed.splitlines())
    for text in ("enforced by the mask", "validated afterwards", "#/properties/b", "type"):
        assert text in printed
    places = "".join(line[2 : 2 + columns // 2].strip() for line in printed.splitlines())
    assert name in places  # folded over lines, not cut


@pytest.mark.parametrize(
    ("arguments", "verdict", "status"),
    [
        ([json.dumps(POINT)], "exact", 0),
        ([json.dumps(UNIQUE)], "approximated", 0),
        ([f"{__name__}:Point"], "exact", 0),
        (["--regex", "a+"], "exact", 0),
        (["--choice", "a", "--choice", "b"], "exact", 0),
        (["{"], "invalid", 2),
        (['{"type": "int"}'], "invalid", 2),
        (["--regex", "(a"], "invalid", 2),
    ],
    ids=str,
)
def test_json_gives_the_verdict_and_the_status_says_whether_it_can_be_used(
    arguments: list[str], verdict: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments, "--json"]) == status
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_what_is_refused_is_status_2_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.ebnf").write_text(EBNF.text)
    arguments = ["--grammar", str(tmp_path / "g.ebnf"), "--backend", "llguidance"]
    assert main(["explain", *arguments]) == 2
    assert capsys.readouterr().out.startswith("refused: 1 of 1 keyword")


def test_a_wrong_schema_is_one_line_on_stderr_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", '{"type": "int"}']) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("structspec: #/type: 'int' is not a type")


def test_a_schema_may_come_from_a_file_or_from_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "point.json").write_text(json.dumps(POINT))
    assert main(["explain", str(tmp_path / "point.json"), "--json"]) == 0
    from_file = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(POINT)))
    assert main(["explain", "-", "--json"]) == 0
    from_pipe = json.loads(capsys.readouterr().out)
    assert from_file["enforced"] == from_pipe["enforced"]


def test_a_models_own_tokens_are_used_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--regex", "a+", "--model", "smollm2-135m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vocab_size"] == 49152


@pytest.mark.parametrize("arguments", [[], ["{}", "--regex", "a"], ["{}", "--backend", "no"]])
def test_an_unusable_command_line_is_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["explain", *arguments])
    assert caught.value.code == 2
