"""Which keywords of a schema a value breaks, by the `jsonschema` package's word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import jsonschema
from jsonschema.exceptions import SchemaError, ValidationError
from referencing.exceptions import Unresolvable

from structspec.bench.cases import Case, Instance

_DRAFTS = (
    jsonschema.Draft202012Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft4Validator,
)
_NO_FORMATS = jsonschema.FormatChecker(formats=())  # it takes patterns for Python's
# what the package leaves alone, or checks only beside other packages
_UNCHECKED = frozenset({"format", "contentEncoding", "contentMediaType", "contentSchema"})


def broken_keywords(case: Case, instance: Instance) -> frozenset[str]:
    """Their names and those of the keywords they stand in; none where the package cannot tell."""
    if case.kind != "json_schema" or instance.is_text:
        return frozenset()
    named = jsonschema.validators.validator_for(case.body, None)
    try:
        for draft in dict.fromkeys((named or _DRAFTS[0], *_DRAFTS)):
            if _is_schema_of(draft, case.body):
                validator = draft(case.body, format_checker=draft.FORMAT_CHECKER)
                if errors := list(validator.iter_errors(instance.data)):
                    return frozenset(_names(errors))
    except (Unresolvable, re.error, RecursionError):
        return frozenset()
    return _UNCHECKED


def _is_schema_of(draft: type[jsonschema.protocols.Validator], schema: object) -> bool:
    try:
        draft.check_schema(schema, format_checker=_NO_FORMATS)
    except SchemaError:
        return False
    return True


def _names(errors: Iterable[ValidationError]) -> Iterator[str]:
    for error in errors:
        yield from (part for part in error.absolute_schema_path if isinstance(part, str))
        yield from _names(error.context or ())
