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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from structspec.constraint import Constraint, Grammar, JsonSchema, Regex
from structspec.errors import InvalidRequest

Kind = Literal["json_schema", "regex", "lark", "ebnf"]

# schemas of the test suite need not name the draft they are written for
_DRAFT_URIS = {"draft7": "http://json-schema.org/draft-07/schema#"}
NOT_REAL_WORLD = frozenset({"Synthesized", "Handwritten"})


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
            case "lark" | "ebnf":
                return Grammar(self.body, dialect=self.kind)
        has_text = any(instance.is_text for instance in self.instances)
        return JsonSchema(self.body, style="flexible" if has_text else "spaced", closed=False)


def read_cases(path: Path, sample: int | None = None) -> list[Case]:
    """The cases of a file, or `sample` of them: those whose hashed ids come first."""
    try:
        cases = list(_read_rows(path))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidRequest(f"cannot read {path} as JSON lines: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"{path} has rows of no known format: {error!r}") from error
    if not cases:
        raise InvalidRequest(f"{path} has no rows")
    if sample is not None:
        cases.sort(key=lambda case: hashlib.sha256(case.id.encode()).digest())
        del cases[sample:]
    return cases


def _read_rows(path: Path) -> Iterator[Case]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield _case(json.loads(line))


def _case(row: dict[str, Any]) -> Case:
    group = row.get("source") or row.get("file") or row.get("topic") or "all"
    kind: Kind = row.get("kind", "json_schema")
    settled = [test for test in row["tests"] if _is_settled(test)]
    return Case(
        id=row["id"],
        source=group,
        keywords=tuple(row.get("features") or (group,)),
        kind=kind,
        body=_schema(row) if kind == "json_schema" else row["grammar"],
        instances=tuple(_instance(test) for test in settled),
        num_doubtful=len(row["tests"]) - len(settled),
    )


def _schema(row: dict[str, Any]) -> Any:
    """The schema, told which draft it follows where the row alone knows."""
    schema, uri = row["schema"], _DRAFT_URIS.get(row.get("draft", ""))
    if uri is None or not isinstance(schema, dict) or "$schema" in schema:
        return schema
    return {"$schema": uri, **schema}


def _is_settled(test: dict[str, Any]) -> bool:
    """Whether the published label and our own verdict, where there is one, agree."""
    return bool(test.get("rs_format", test["valid"]) == test["valid"])


def _instance(test: dict[str, Any]) -> Instance:
    is_text = "text" in test
    return Instance(test["text" if is_text else "data"], is_text, test["valid"])
