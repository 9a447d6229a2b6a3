"""Sizes of sets and dicts: whether what is counted in a text is as many when Python has read it."""

from __future__ import annotations

from typing import Any

_CHANGES = ("strip_whitespace", "to_lower", "to_upper")


def may_merge(schema: Any, config: Any) -> bool:
    """Whether two texts that differ may be read as one value: `"a"` and `"A"` in lower case.

    `schema` is pydantic's core schema of an item or a key.
    """
    match schema["type"]:
        case "int" | "bool" | "enum":
            return False
        case "str":
            return any(schema.get(name, getattr(config, f"str_{name}")) for name in _CHANGES)
        case "literal":  # 1 and True are one item of a set
            return len(set(schema["expected"])) < len(schema["expected"])
        case "nullable":
            return may_merge(schema["schema"], config)
    return True
