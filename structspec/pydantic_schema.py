"""JSON schemas of Python types, with the places closed where pydantic's own are too loose.

A schema that guides generation has to admit only text that then validates: every loose spot is an
`OutputInvalid` waiting to happen.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

INTEGER_KEY = r"^(0|-?[1-9][0-9]{0,17})$"
NAIVE_DATE_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$"


class TightJsonSchema(GenerateJsonSchema):
    """Pydantic's validation schema, tightened where its text would not validate."""

    # A default that JSON cannot write stays a Python default; a union member without a schema is
    # never generated. Neither is worth a warning in the middle of a program.
    ignored_warning_kinds: Set[Any] = {"skipped-choice", "non-serializable-default"}  # type: ignore[assignment]

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number; text in digits where digits are limited. Pydantic also admits any string."""
        digits, places = schema.get("max_digits"), schema.get("decimal_places")
        bounds = [schema.get(name) is not None for name in ("ge", "gt", "le", "lt", "multiple_of")]
        if (digits is None and places is None) or any(bounds):
            number: JsonSchemaValue = super().decimal_schema(schema)["anyOf"][0]
            return number
        whole = f"{{1,{max(1, digits - (places or 0))}}}" if digits is not None else "+"
        if places == 0 or (digits is not None and places is None):
            return {"type": "string", "pattern": f"^-?[0-9]{whole}$"}
        return {"type": "string", "pattern": rf"^-?[0-9]{whole}(\.[0-9]{{1,{places}}})?$"}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Keys that are integers look like integers; pydantic admits any key in `dict[int, T]`."""
        json_schema = super().dict_schema(schema)
        if schema.get("keys_schema", {}).get("type") == "int":
            values = json_schema.get("additionalProperties", True)
            json_schema["patternProperties"] = {INTEGER_KEY: values}
            json_schema["additionalProperties"] = False
        return json_schema

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        """Any array: the set itself removes what is written twice."""
        return self._without_unique_items(super().set_schema(schema))

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """Any array: the set itself removes what is written twice."""
        return self._without_unique_items(super().frozenset_schema(schema))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """`format: date-time` demands an offset, which a NaiveDatetime would refuse."""
        if schema.get("tz_constraint") == "naive":
            return {"type": "string", "pattern": NAIVE_DATE_TIME}
        return super().datetime_schema(schema)

    def _without_unique_items(self, json_schema: JsonSchemaValue) -> JsonSchemaValue:
        if "minItems" not in json_schema:  # a minimum counts different items
            del json_schema["uniqueItems"]
        return json_schema
