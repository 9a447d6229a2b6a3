"""Which keywords of a schema a value breaks, by the `jsonschema` package's word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import jsonschema
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from structspec.bench.cases import Case, Instance

# an error inside one of these is one of the keyword itself too
_APPLIED_IN_PLACE = frozenset(
    ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas")
) | {"contains", "propertyNames", "$ref", "$dynamicRef", "$recursiveRef"}


def broken_keywords(case: Case, instance: Instance) -> frozenset[str]:
    """Their names, those inside failing branches too; none where the package cannot tell.

    A value that it finds nothing wrong with breaks a `format` whose checker is not installed.
    """
    if case.kind != "json_schema" or instance.is_text:
        return frozenset()
    draft = jsonschema.validators.validator_for(case.body, jsonschema.Draft202012Validator)
    validator = draft(case.body, format_checker=draft.FORMAT_CHECKER)
    try:
        return frozenset(_names(validator.iter_errors(instance.data))) or frozenset({"format"})
    except (Unresolvable, re.error, RecursionError):
        return frozenset()


def _names(errors: Iterable[ValidationError]) -> Iterator[str]:
    for error in errors:
        yield str(error.validator)
        yield from _APPLIED_IN_PLACE.intersection(map(str, error.absolute_schema_path))
        yield from _names(error.context or ())
