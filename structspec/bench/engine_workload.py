"""What the engine is given to write: the tests of a workload file, request by request.

    plain      no constraint, written to the limit whatever the model would stop at
    same       one schema for all
    pool       the file's schemas in turn
    fresh      a schema that no request before had
    regex      counted characters: the dearest masks a host can be asked for
    copy       a document from the prompt with one change, as its schema says

In `same`, `pool` and `fresh` a schema is wrapped as 40 to 60 records, so that outputs of equal
length are compared: all of them run to the limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from structspec.errors import InvalidRequest

Job = tuple[str, dict[str, Any]]  # a prompt and the options of `generate`

_MIN_RECORDS, _MAX_RECORDS = 40, 60


@dataclass(frozen=True, slots=True)
class Workload:
    """Schemas and prompts by name, a long regex, and documents to copy."""

    schemas: Mapping[str, Any]
    prompts: Mapping[str, str]
    regex: str
    copies: tuple[Mapping[str, Any], ...]


def read_workload(path: Path, *, is_bounded: bool = True) -> Workload:
    """From a file; raises InvalidRequest where it is none. Bounded strings have a `maxLength`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schemas = data["bounded" if is_bounded else "unbounded"]
        return Workload(
            schemas, data["prompts"], data["regex_long"], tuple(data.get("copy_tasks", ()))
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"{path} is no workload: {error!r}") from None


def make_jobs(workload: Workload, test: str, num_requests: int, max_tokens: int) -> list[Job]:
    """So many requests of a test; those of `fresh` differ from call to call."""
    make = TESTS[test]
    shared = {"max_tokens": max_tokens, "temperature": 0.0}
    return [
        (prompt, {**options, **shared})
        for prompt, options in (make(workload, index) for index in range(num_requests))
    ]


def _plain(workload: Workload, index: int) -> Job:
    return _in_turn(workload.prompts, index)[1], {"ignore_eos": True}


def _same(workload: Workload, index: int) -> Job:
    name, prompt = next(iter(workload.prompts.items()))
    return prompt, _constrained(_records(workload.schemas[name]))


def _pool(workload: Workload, index: int) -> Job:
    name, prompt = _in_turn(workload.prompts, index)
    return prompt, _constrained(_records(workload.schemas[name]))


def _fresh(workload: Workload, index: int) -> Job:
    name, prompt = _in_turn(workload.prompts, index)
    schema, note = workload.schemas[name], f"note_{next(_NOTES)}"
    renamed = {
        **schema,
        "properties": {**schema["properties"], note: {"type": "string", "maxLength": 20}},
        "required": [*schema.get("required", ()), note],
    }
    return prompt, _constrained(_records(renamed))


def _regex(workload: Workload, index: int) -> Job:
    return _in_turn(workload.prompts, index)[1], {"regex": workload.regex}


def _copy(workload: Workload, index: int) -> Job:
    if not workload.copies:
        raise InvalidRequest("the workload has no documents to copy")
    task = workload.copies[index % len(workload.copies)]
    return task["prompt"], _constrained(task["schema"])


TESTS: Mapping[str, Callable[[Workload, int], Job]] = {
    "plain": _plain,
    "same": _same,
    "pool": _pool,
    "fresh": _fresh,
    "regex": _regex,
    "copy": _copy,
}
_NOTES = count(1)


def _in_turn(prompts: Mapping[str, str], index: int) -> tuple[str, str]:
    return list(prompts.items())[index % len(prompts)]


def _constrained(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": schema, "schema_in_prompt": "never"}


def _records(schema: Mapping[str, Any]) -> dict[str, Any]:
    records = {
        "type": "array",
        "items": schema,
        "minItems": _MIN_RECORDS,
        "maxItems": _MAX_RECORDS,
    }
    return {
        "type": "object",
        "properties": {"records": records},
        "required": ["records"],
        "additionalProperties": False,
    }
