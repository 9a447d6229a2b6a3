"""Whether every keyword has a value of its kind: the quick look before the meta-schema's.

The meta-schemas say the same in more words and milliseconds. They are asked where something looks
wrong here, since they word it best, and where a schema names a draft in which forms differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_Check = Callable[[Any], bool]


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_count(value: Any) -> bool:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return is_whole and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_step(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_identifier(value: Any) -> bool:
    return isinstance(value, str) and "#" not in value[:-1]


def _is_anchor(value: Any) -> bool:
    return isinstance(value, str) and _ANCHOR.fullmatch(value) is not None


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _are_names(value) and TYPES.issuperset(value)
    return isinstance(value, str) and value in TYPES


def _is_enum(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _are_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_schema(item) or _are_names(item) for item in value.values()
    )


def _is_required_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_are_names, value.values()))


KINDS: dict[str, _Check] = {
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _are_schemas),
    **dict.fromkeys(("not", "if", "then", "else", "items", "additionalItems"), _is_schema),
    **dict.fromkeys(("additionalProperties", "contains", "propertyNames"), _is_schema),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), _is_schema),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _is_map),
    **dict.fromkeys(("$defs", "definitions"), _is_map),
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef", "$schema"), _is_text),
    **dict.fromkeys(("pattern", "format"), _is_text),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _is_anchor),
    "$id": _is_identifier,
    "multipleOf": _is_step,
    "uniqueItems": _is_bool,
    "required": _are_names,
    "type": _is_type,
    "enum": _is_enum,
    "dependencies": _are_dependencies,
    "dependentRequired": _is_required_map,
}
# keywords in which drafts differ: older ones only know other forms of them
_BOOLS_ONCE = ("exclusiveMinimum", "exclusiveMaximum")
_NEW_FORMS = frozenset(("exclusiveMinimum", "exclusiveMaximum", "contains", "propertyNames"))


def looks_right(schema: dict[str, Any], *, is_old_draft: bool) -> bool:
    """Whether each keyword of one subschema has a value that every draft named takes.

    False says nothing yet: the meta-schema has the last word.
    """
    if is_old_draft and not _NEW_FORMS.isdisjoint(schema):
        return False
    for keyword, value in schema.items():
        check = KINDS.get(keyword)
        if check is not None and not check(value):
            return False
    return True


def wrong_in_every_draft(schema: dict[str, Any]) -> str | None:
    """The first keyword whose value no draft takes that knows it; None where there is none."""
    for keyword, value in schema.items():
        check = KINDS.get(keyword)
        is_old_form = (
            (keyword in _BOOLS_ONCE and isinstance(value, bool))
            or (keyword == "items" and _are_schemas(value))
            or (keyword == "$id" and _is_text(value))
        )
        if check is not None and not check(value) and not is_old_form:
            return keyword
    return None
