"""The drafts of JSON Schema: which one a schema names, and what its words meant in each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jsonschema


@dataclass(frozen=True, slots=True)
class Draft:
    """One draft, and where it differs from the newest.

    What is not listed here is read in every draft as in the newest that knows it: a keyword of a
    later draft is kept, never dropped, and so is `dependencies`.
    """

    name: str
    validator: Any  # jsonschema's class
    id_keyword: str = "$id"
    is_reference_alone: bool = False  # what stands beside `$ref` says nothing; content is asserted
    is_integer_spelled: bool = False  # 1.0 is no integer
    has_item_lists: bool = True  # `items` is of all items or a list, not of those behind others
    has_contains_counts: bool = True  # `minContains` and `maxContains`


_FOUR = Draft("4", jsonschema.Draft4Validator, "id", True, True)
_SEVEN = Draft("7", jsonschema.Draft7Validator, is_reference_alone=True, has_contains_counts=False)
_NINETEEN = Draft("2019-09", jsonschema.Draft201909Validator)
NEWEST = Draft("2020-12", jsonschema.Draft202012Validator, has_item_lists=False)
_DRAFTS = (  # from the oldest
    replace(_FOUR, name="3", validator=jsonschema.Draft3Validator),
    _FOUR,
    replace(_SEVEN, name="6", validator=jsonschema.Draft6Validator),
    _SEVEN,
    _NINETEEN,
    NEWEST,
)
_FORMS = frozenset(("exclusiveMinimum", "exclusiveMaximum", "$id", "items"))  # that tell drafts
_URI = re.compile(r"json-schema\.org/(?:draft-0([3467])|draft/(2019-09|2020-12))/schema#?$")


def draft_named(root: object) -> Draft | None:
    """The draft that a schema names in `$schema`; None where it names none that is known."""
    named = root.get("$schema") if isinstance(root, dict) else None
    match = _URI.search(named) if isinstance(named, str) else None
    name = None if match is None else match[1] or match[2]
    return next((draft for draft in _DRAFTS if draft.name == name), None)


def draft_of_forms(schemas: Iterable[dict[str, Any]]) -> Draft:
    """The newest draft that knows the forms which the keywords of some subschemas have."""
    found = NEWEST
    for schema in schemas:
        if not _FORMS.isdisjoint(schema) and (draft := _draft_of_forms(schema)) is not NEWEST:
            found = min(found, draft, key=_DRAFTS.index)
    return found


def _draft_of_forms(schema: dict[str, Any]) -> Draft:
    if any(isinstance(schema.get(k), bool) for k in ("exclusiveMinimum", "exclusiveMaximum")):
        return _FOUR
    identifier = schema.get("$id")
    if isinstance(identifier, str) and "#" in identifier[:-1]:
        return _SEVEN
    return _NINETEEN if isinstance(schema.get("items"), list) else NEWEST
