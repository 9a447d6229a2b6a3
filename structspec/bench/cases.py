"""Reading benchmark data: constraints, and texts that are known to satisfy them or not.

One JSON object a line, plain or gzipped. A row is one of
  JSONSchemaBench         id, source, features, schema, tests of (data, valid, rs_format)
  JSON-Schema-Test-Suite  id, file, schema, tests of (data, valid)
  probes                  id, topic, kind, schema or grammar, tests of (data or text, valid)
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args

from structspec.constraint import Constraint, Grammar, JsonSchema, Regex
from structspec.errors import GrammarError, InvalidRequest
from structspec.grammars.lark_reader import inline_json

Kind = Literal["json_schema", "regex", "lark", "ebnf"]

# schemas of the test suite need not name the draft they are written for
_DRAFT_URIS = {"draft7": "http://json-schema.org/draft-07/schema#"}
NOT_REAL_WORLD = frozenset({"Synthesized", "Handwritten"})


class _UnknownFormat(Exception):
    """A row that is none of the three kinds above; the message says why."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One value (or text, where the row gives text) and whether the constraint allows it."""

    data: Any
    is_text: bool
    is_valid: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One constraint with its instances; `num_doubtful` more have labels that disagree."""

    id: str
    source: str
    keywords: tuple[str, ...]
    kind: Kind
    body: Any  # the schema, or the text of a regex or grammar
    instances: tuple[Instance, ...]
    num_doubtful: int = 0

    @property
    def is_real_world(self) -> bool:
        """Whether it was found rather than made up to be difficult."""
        return self.source not in NOT_REAL_WORLD

    def constraint(self) -> Constraint:
        """What structspec is asked to compile.

        Values are written as `json.dumps` does; where the row gives text, white space is free.
        """
        match self.kind:
            case "regex":
                return Regex(self.body)
            case "lark":
                return Grammar(_with_free_space(self.body), dialect="lark")
            case "ebnf":
                return Grammar(self.body, dialect="ebnf")
        has_text = any(instance.is_text for instance in self.instances)
        return JsonSchema(self.body, style="flexible" if has_text else "spaced", closed=False)


def read_cases(path: Path, sample: int | None = None) -> list[Case]:
    """The cases of a file, or `sample` of them: those whose hashed ids come first."""
    cases = list(_read_rows(path))
    if not cases:
        raise InvalidRequest(f"{path} has no rows")
    if sample is not None:
        cases.sort(key=lambda case: hashlib.sha256(case.id.encode()).digest())
        del cases[sample:]
    return cases


def _read_rows(path: Path) -> Iterator[Case]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            yield _case(json.loads(line))
        except (ValueError, RecursionError) as error:
            reason = f"cannot read {path} as JSON lines: line {number}: {error}"
            raise InvalidRequest(reason) from error
        except _UnknownFormat as error:
            reason = f"{path} has rows of no known format: line {number}: {error}"
            raise InvalidRequest(reason) from None


def _lines(path: Path) -> list[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            return list(lines)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read {path}: {error}") from error


def _case(row: Any) -> Case:
    _check(row, dict, "a row")
    group = row.get("source") or row.get("file") or row.get("topic") or "all"
    _check(group, str, "source, file and topic")
    keywords = row.get("features") or [group]
    _check(keywords, list, "features")
    kind: Kind = row.get("kind", "json_schema")
    if kind not in get_args(Kind):
        raise _UnknownFormat(f"kind is one of {', '.join(get_args(Kind))}, not {kind!r}")
    tests = _field(row, "tests", list)
    for test in tests:
        _check_test(test)
    settled = [test for test in tests if _is_settled(test)]
    return Case(
        id=_field(row, "id", str),
        source=group,
        keywords=tuple(map(str, keywords)),
        kind=kind,
        body=_schema(row) if kind == "json_schema" else _field(row, "grammar", str),
        instances=tuple(_instance(test) for test in settled),
        num_doubtful=len(tests) - len(settled),
    )


def _check_test(test: Any) -> None:
    _check(test, dict, "a test")
    _field(test, "valid", bool)
    if "text" in test:
        _field(test, "text", str)
    elif "data" not in test:
        raise _UnknownFormat("a test has neither data nor text")


def _with_free_space(grammar: str) -> str:
    """A Lark grammar whose `%json {…}` leave white space free, as llguidance alone would."""
    try:
        found = inline_json(grammar)
    except GrammarError:
        return grammar  # it is refused with its place when it is compiled
    for inline in reversed(found):
        schema = {"x-guidance": {}} | json.loads(inline.schema)
        grammar = f"{grammar[: inline.start]}%json {json.dumps(schema)}{grammar[inline.end :]}"
    return grammar


def _schema(row: dict[str, Any]) -> Any:
    """The schema, told which draft it follows where the row alone knows."""
    schema, uri = _field(row, "schema", dict | bool), _DRAFT_URIS.get(row.get("draft", ""))
    if uri is None or not isinstance(schema, dict) or "$schema" in schema:
        return schema
    return {"$schema": uri, **schema}


def _is_settled(test: dict[str, Any]) -> bool:
    """Whether the published label and our own verdict, where there is one, agree."""
    return bool(test.get("rs_format", test["valid"]) == test["valid"])


def _instance(test: dict[str, Any]) -> Instance:
    is_text = "text" in test
    return Instance(test["text" if is_text else "data"], is_text, test["valid"])


def _field(row: dict[str, Any], name: str, kind: type | UnionType) -> Any:
    if name not in row:
        raise _UnknownFormat(f"{name!r} is missing")
    _check(row[name], kind, name)
    return row[name]


def _check(value: Any, kind: type | UnionType, what: str) -> None:
    if not isinstance(value, kind):
        names = str(kind).removeprefix("<class '").removesuffix("'>")
        raise _UnknownFormat(f"{what}: {names} is expected, not {type(value).__name__}")
