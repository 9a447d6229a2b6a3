"""Random JSON schemas: every keyword of drafts 4 to 2020-12, small, and in combination.

A subschema is a few keyword groups thrown together; groups that a draft does not know stay out,
because what an unknown keyword means is that draft's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[..., Any]
Schema = dict[str, Any] | bool

NEWEST = "2020-12"
URIS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    NEWEST: "https://json-schema.org/draft/2020-12/schema",
}
DRAFTS = tuple(URIS)  # from the oldest to the newest

KEYS = ("a", "b", "ab", "é")
KEY_PATTERNS = ("^a", "b$", "^[ab]$", "é|b", ".")
TEXTS = ("", "a", "b", "ab", "ba", "aab", "é", "1", '"', "\\", "2024-02-29", "1.2.3.4")
PATTERNS = ("^a", "b$", "^[ab]*$", "^.{2}$", "a.?b", r"\d", "^(?!a)", "^(a|1)?$")
FORMATS = ("date", "time", "ipv4", "uuid", "email", "uri-reference", "json-pointer", "made-up")
NUMBERS = (0, 1, 2, 3, -1, 10, 100, 0.5, -0.5, 1.5, 0.25, 1e-3, 1e20, -2.5)
STEPS = (1, 2, 3, 0.5, 0.1, 1.5, 10)
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
SCALARS = (None, True, False, *NUMBERS, *TEXTS)

_MAX_PARTS = 12  # subschemas in one schema: small ones find as much, and can be read


def json_values(max_leaves: int = 4) -> st.SearchStrategy[Any]:
    """Any small value, over the same few keys and scalars as the schemas."""
    return st.recursive(
        st.sampled_from(SCALARS),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from((*KEYS, "x")), inner, max_size=3)
        ),
        max_leaves=max_leaves,
    )


VALUES = json_values()


@st.composite
def schemas(draw: Draw, draft: str | None = None) -> Schema:
    """A whole schema with definitions; without a draft it may name one or none."""
    if draft is None:
        draft = draw(st.sampled_from((NEWEST, NEWEST, *DRAFTS)))
    writer = _Writer(draw, draft)
    root = writer.schema(3)
    if isinstance(root, bool):
        return root
    place = "$defs" if draft in DRAFTS[3:] else "definitions"
    if writer.num_names:
        root = {**root, place: writer.definitions()}
    if draft != NEWEST or draw(st.booleans()):
        root = {"$schema": URIS[draft], **root}
    return root


class _Writer:
    """Draws one schema; `num_names` definitions are referred to."""

    def __init__(self, draw: Draw, draft: str) -> None:
        self._draw = draw
        self._draft = draft
        self.num_names = 0
        self._num_parts = 0

    def knows(self, first: str, last: str = NEWEST) -> bool:
        """Whether the draft is one of these."""
        return DRAFTS.index(first) <= DRAFTS.index(self._draft) <= DRAFTS.index(last)

    def schema(self, depth: int) -> Schema:
        """A subschema, at most so deep."""
        self._num_parts += 1
        if self.knows("6") and self._pick(12) == 0:
            return bool(self._pick(2))
        groups = [group for first, last, group in _GROUPS if self.knows(first, last)]
        if depth > 0 and self._num_parts < _MAX_PARTS:
            groups += [group for first, last, group in _NESTED if self.knows(first, last)]
        written: dict[str, Any] = {}
        for _ in range(self._draw(st.sampled_from((1, 1, 2, 2, 3, 4)))):
            group = self._one(groups)
            for keyword, value in group(self, depth - 1).items():
                written.setdefault(keyword, value)
        return written

    def definitions(self) -> dict[str, Schema]:
        """What was referred to, which may refer to more."""
        written: dict[str, Schema] = {}
        while len(written) < self.num_names:
            written[f"d{len(written)}"] = self.schema(1)
        return written

    def _pick(self, number: int) -> int:
        return int(self._draw(st.integers(0, number - 1)))

    def _one(self, choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def _some(self, choices: Any, low: int, high: int) -> list[Any]:
        return list(
            self._draw(st.lists(st.sampled_from(choices), min_size=low, max_size=high, unique=True))
        )

    # Keywords without subschemas

    def type(self, depth: int) -> dict[str, Any]:
        if self._pick(3):
            return {"type": self._one(TYPES)}
        return {"type": self._some(TYPES, 1, 3)}

    def enum(self, depth: int) -> dict[str, Any]:
        values = self._draw(st.lists(VALUES, min_size=1, max_size=4))
        kept = [v for i, v in enumerate(values) if v not in values[:i]]
        return {"enum": kept}

    def const(self, depth: int) -> dict[str, Any]:
        return {"const": self._draw(VALUES)}

    def numbers(self, depth: int) -> dict[str, Any]:
        low, high = self._one(NUMBERS), self._one(NUMBERS)
        kind = self._pick(6)
        if kind == 4:
            return {"multipleOf": self._one(STEPS)}
        if kind == 5:  # hardly anything, or nothing
            step = {"multipleOf": self._one(STEPS)} if self._pick(2) else {"type": "integer"}
            return {"minimum": low, "maximum": low + self._one((0.25, 0.5, 1, 2))} | step
        is_open = bool(self._pick(2))
        if not self.knows("6"):
            part = {"minimum": low, "maximum": high}
            part |= {"exclusiveMinimum": is_open, "exclusiveMaximum": bool(self._pick(2))}
        else:
            part = {"exclusiveMinimum" if is_open else "minimum": low}
            part["exclusiveMaximum" if self._pick(2) else "maximum"] = high
        return {k: v for k, v in part.items() if kind == 0 or (kind % 2 == 1) == ("inimum" in k)}

    def strings(self, depth: int) -> dict[str, Any]:
        kind = self._pick(5)
        if kind == 0:
            return {"format": self._one(FORMATS)}
        if kind == 1:
            length = {"minLength": self._pick(3)} if self._pick(3) == 0 else {}
            return {"pattern": self._one(PATTERNS)} | length
        return self._bounds("Length", kind)

    def counts(self, depth: int) -> dict[str, Any]:
        return self._bounds(self._one(("Items", "Properties")), 2 + self._pick(3))

    def _bounds(self, what: str, kind: int) -> dict[str, Any]:
        low, high = self._pick(4), self._pick(4)
        part = {f"min{what}": min(low, high), f"max{what}": max(low, high)}
        return {k: v for k, v in part.items() if kind == 2 or (kind == 3) == ("min" in k)}

    def unique(self, depth: int) -> dict[str, Any]:
        return {"uniqueItems": self._pick(4) > 0}

    def required(self, depth: int) -> dict[str, Any]:
        return {"required": self._some(KEYS, 1, 2)}

    def dependent_required(self, depth: int) -> dict[str, Any]:
        keyword = "dependentRequired" if self.knows("2019-09") else "dependencies"
        return {keyword: {k: self._some(KEYS, 1, 2) for k in self._some(KEYS, 1, 2)}}

    def reference(self, depth: int) -> dict[str, Any]:
        kind = self._pick(4)
        if kind == 0:
            return {"$ref": "#"}
        index = self._pick(min(self.num_names + 1, 2))
        self.num_names = max(self.num_names, index + 1)
        return {"$ref": f"#/{'$defs' if self.knows('2019-09') else 'definitions'}/d{index}"}

    # Keywords with subschemas

    def _list(self, depth: int) -> list[Schema]:
        return [self.schema(depth) for _ in range(self._one((1, 2, 2, 3)))]

    def all_of(self, depth: int) -> dict[str, Any]:
        return {"allOf": self._list(depth)}

    def any_of(self, depth: int) -> dict[str, Any]:
        return {"anyOf": self._list(depth)}

    def one_of(self, depth: int) -> dict[str, Any]:
        return {"oneOf": self._list(depth)}

    def negation(self, depth: int) -> dict[str, Any]:
        return {"not": self.schema(depth)}

    def condition(self, depth: int) -> dict[str, Any]:
        branches = self._some(("then", "else"), 1, 2)
        return {"if": self.schema(depth), **{b: self.schema(depth) for b in branches}}

    def properties(self, depth: int) -> dict[str, Any]:
        part: dict[str, Any] = {
            "properties": {k: self.schema(depth) for k in self._some(KEYS, 1, 3)}
        }
        if self._pick(2):
            part |= self.required(depth)
        return part

    def pattern_properties(self, depth: int) -> dict[str, Any]:
        patterns = self._some(KEY_PATTERNS, 1, 2)
        return {"patternProperties": {p: self.schema(depth) for p in patterns}}

    def additional_properties(self, depth: int) -> dict[str, Any]:
        return {"additionalProperties": self._perhaps_false(depth)}

    def _perhaps_false(self, depth: int) -> Schema:
        return False if self._pick(2) else self.schema(depth)

    def property_names(self, depth: int) -> dict[str, Any]:
        return {"propertyNames": self.schema(min(depth, 1))}

    def dependent_schemas(self, depth: int) -> dict[str, Any]:
        keyword = "dependentSchemas" if self.knows("2019-09") else "dependencies"
        return {keyword: {self._one(KEYS): self.schema(depth)}}

    def items(self, depth: int) -> dict[str, Any]:
        if self._pick(2):
            return {"items": self.schema(depth)}
        if self.knows(NEWEST):
            part: dict[str, Any] = {"prefixItems": self._list(depth)}
            return part | ({"items": self._perhaps_false(depth)} if self._pick(2) else {})
        part = {"items": self._list(depth)}
        return part | ({"additionalItems": self._perhaps_false(depth)} if self._pick(2) else {})

    def contains(self, depth: int) -> dict[str, Any]:
        part: dict[str, Any] = {"contains": self.schema(depth)}
        if self.knows("2019-09") and self._pick(2):
            low = self._pick(3)
            part |= {"minContains": low} if self._pick(2) else {}
            part |= {"maxContains": low + self._pick(2)} if self._pick(2) else {}
        return part

    def unevaluated(self, depth: int) -> dict[str, Any]:
        keyword = self._one(("unevaluatedProperties", "unevaluatedItems"))
        return {keyword: self._perhaps_false(depth)}


_OLDEST = DRAFTS[0]
_GROUPS = (
    (_OLDEST, NEWEST, _Writer.type),
    (_OLDEST, NEWEST, _Writer.type),
    (_OLDEST, NEWEST, _Writer.enum),
    ("6", NEWEST, _Writer.const),
    (_OLDEST, NEWEST, _Writer.numbers),
    (_OLDEST, NEWEST, _Writer.strings),
    (_OLDEST, NEWEST, _Writer.counts),
    (_OLDEST, NEWEST, _Writer.unique),
    (_OLDEST, NEWEST, _Writer.required),
    (_OLDEST, NEWEST, _Writer.dependent_required),
    (_OLDEST, NEWEST, _Writer.reference),
)
_NESTED = (
    (_OLDEST, NEWEST, _Writer.all_of),
    (_OLDEST, NEWEST, _Writer.any_of),
    (_OLDEST, NEWEST, _Writer.one_of),
    (_OLDEST, NEWEST, _Writer.negation),
    ("7", NEWEST, _Writer.condition),
    (_OLDEST, NEWEST, _Writer.properties),
    (_OLDEST, NEWEST, _Writer.properties),
    (_OLDEST, NEWEST, _Writer.pattern_properties),
    (_OLDEST, NEWEST, _Writer.additional_properties),
    ("6", NEWEST, _Writer.property_names),
    (_OLDEST, NEWEST, _Writer.dependent_schemas),
    (_OLDEST, NEWEST, _Writer.items),
    ("6", NEWEST, _Writer.contains),
    ("2019-09", NEWEST, _Writer.unevaluated),
)
