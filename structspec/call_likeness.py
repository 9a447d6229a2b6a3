"""Whether an answer may begin in the very words that a call does.

Where a call and a JSON answer are alternatives and both are written as one JSON object, `{"name":
"f", "arguments": …` is a call only if the answer's schema has no place for these keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from structspec.constraint import JsonSchema, Tools
from structspec.grammars.envelopes import ENVELOPES
from structspec.json_references import local_target

# what may bring keys in ways that are not followed here
_OTHERS = {
    *("allOf", "$dynamicRef", "if", "not", "dependentSchemas", "patternProperties"),
    *("unevaluatedProperties", "then", "else", "dependencies"),
}


def may_look_like_a_call(tools: Tools) -> bool:
    """Whether some answer of these tools begins as a call; errs towards yes.

    Texts of other styles than the default are all taken for ones that may.
    """
    key = ENVELOPES[tools.envelope].arguments_key
    if tools.choice != "auto" or tools.response is None or key is None:
        return False
    if tools.style != "spaced":
        return True
    return all(_Keys(tools.response).may_have(one) for one in ("name", key))


class _Keys:
    """Which keys an answer's object may have."""

    def __init__(self, response: JsonSchema) -> None:
        self._root = json.loads(response.text)
        self._is_closed = response.closed

    def may_have(self, key: str) -> bool:
        """Whether the object may have this one."""
        return self._may_have(self._root, key, frozenset())

    def _may_have(self, schema: Any, key: str, followed: frozenset[str]) -> bool:
        if not isinstance(schema, Mapping):
            return schema is not False
        if schema.keys() & _OTHERS:
            return True
        if "$ref" in schema:
            place = str(schema["$ref"])
            target = local_target(place, self._root)
            is_simple = target is not None and "properties" not in schema and place not in followed
            return not is_simple or self._may_have(target, key, followed | {place})
        if branches := [one for name in ("anyOf", "oneOf") for one in schema.get(name, ())]:
            own = {name: schema[name] for name in schema if name not in ("anyOf", "oneOf")}
            is_bare = not own.keys() & {"properties", "additionalProperties", "type"}
            return not is_bare or any(self._may_have(one, key, followed) for one in branches)
        return self._may_hold(schema, key)

    def _may_hold(self, schema: Mapping[str, Any], key: str) -> bool:
        """Of a schema that brings its keys itself."""
        kinds = schema.get("type", "object")
        if "object" not in ([kinds] if isinstance(kinds, str) else kinds):
            return False
        listed = [schema["const"]] if "const" in schema else schema.get("enum")
        if listed is not None:
            return any(isinstance(value, Mapping) and key in value for value in listed)
        properties = schema.get("properties", {})
        if key in properties:
            return True
        is_closed = self._is_closed and bool(properties)
        return schema.get("additionalProperties", not is_closed) is not False
