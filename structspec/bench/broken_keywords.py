"""Which keywords of a schema a value breaks, by the `jsonschema` package's word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from structspec.bench.cases import Case, Instance


def broken_keywords(case: Case, instance: Instance) -> frozenset[str]:
    """Their names, those inside failing branches too; none where the package cannot tell."""
    if case.kind != "json_schema" or instance.is_text:
        return frozenset()
    draft = jsonschema.validators.validator_for(case.body, jsonschema.Draft202012Validator)
    validator = draft(case.body, format_checker=draft.FORMAT_CHECKER)
    try:
        return frozenset(_names(validator.iter_errors(instance.data)))
    except (Unresolvable, re.error, RecursionError):
        return frozenset()


def _names(errors: Any) -> Iterator[str]:
    error: ValidationError
    for error in errors:
        yield str(error.validator)
        yield from _names(error.context)
