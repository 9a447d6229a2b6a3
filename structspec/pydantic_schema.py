"""JSON schemas of Python types, with the places closed where pydantic's own are too loose.

A schema that guides generation has to admit only text that then validates: every loose spot is an
`OutputInvalid` waiting to happen. What no schema can say is noted, see `pydantic_checks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema, to_json

from structspec.pydantic_checks import (
    OPEN_NOTES,
    is_held,
    is_own_schema,
    name_of,
    short_name,
    with_note,
)
from structspec.pydantic_keys import key_schema
from structspec.pydantic_numbers import decimal_schema
from structspec.pydantic_patterns import is_ecma_too
from structspec.pydantic_sizes import may_merge

_BOUNDS = ("ge", "gt", "le", "lt", "now_op")
_BYTE_SIZE = "ByteSize._validate"
_BY_NAME: dict[str, JsonSchemaValue] = {  # what functions of pydantic read, better than they say
    _BYTE_SIZE: {
        "anyOf": [
            {"type": "string", "pattern": r"^[0-9]{1,12}(\.[0-9]{1,3})? ?([KMGTPE]i?)?B$"},
            {"type": "integer", "minimum": 0},
        ]
    },
    "PaymentCardNumber.validate": {"type": "string", "pattern": "^[0-9]{12,19}$"},
}
_HELD_BY_NAME = (_BYTE_SIZE,)
_COUNTED_LATER = "counted once they are read, where two may be the same"
_MAX_FLOAT_INT = 2**63  # integers beyond are read from digits alone, not from `1e20`
_NO_OUTER_BLANKS = r"^([^\s\x85]([^]*[^\s\x85])?)?$"
# classes that are Unicode's for pydantic and ASCII's in a schema, where more is then admitted
_WIDER_IN_SCHEMAS = re.compile(r"\\[DWSsbBpP]|\[\^[^\]]*\\[dw]")


class TightJsonSchema(GenerateJsonSchema):
    """Pydantic's validation schema, tightened where its text would not validate."""

    # A default that JSON cannot write stays a Python default; a union member without a schema is
    # never generated. Neither is worth a warning in the middle of a program.
    ignored_warning_kinds: Set[Any] = {"skipped-choice", "non-serializable-default"}  # type: ignore[assignment]

    _definitions: Sequence[core_schema.CoreSchema] = ()

    def definitions_schema(self, schema: core_schema.DefinitionsSchema) -> JsonSchemaValue:
        """As pydantic has it; what is defined is kept, for parts that refer to it."""
        self._definitions = schema["definitions"]
        return super().definitions_schema(schema)

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """As pydantic has it; of a schema that is not pydantic's own word that is noted."""
        json_schema = super().generate_inner(schema)
        metadata = schema.get("metadata") or {}
        for kind in ("pydantic_js_functions", "pydantic_js_annotation_functions"):
            for function in metadata.get(kind, ()):
                if is_own_schema(function):
                    reason = "the JSON schema is not pydantic's own"
                    json_schema = with_note(json_schema, short_name(function), reason)
        if schema["type"] == "function-plain" and "pydantic_js_functions" in metadata:
            return _with_function(json_schema, schema)  # its own method was not asked
        return json_schema

    # numbers

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """As pydantic has it; spelled as floats, which closed masks never do, not all are read."""
        json_schema = super().int_schema(schema)
        least, most = schema.get("ge", schema.get("gt")), schema.get("le", schema.get("lt"))
        is_short = all(bound is not None and abs(bound) < _MAX_FLOAT_INT for bound in (least, most))
        return json_schema if is_short else _with_floats(json_schema)

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Bounds that are excluded stay so when a text is rounded to a float."""
        json_schema = super().float_schema(schema)
        if above := json_schema.get("exclusiveMinimum"):
            least = math.nextafter(above, math.inf)
            json_schema["minimum"] = max(least, json_schema.get("minimum", least))
        if below := json_schema.get("exclusiveMaximum"):
            most = math.nextafter(below, -math.inf)
            json_schema["maximum"] = min(most, json_schema.get("maximum", most))
        if "multipleOf" in json_schema:
            return with_note(json_schema, "multiple_of", "floats are not decimal numbers")
        return json_schema

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number; text in digits where digits are limited. Pydantic also admits any string."""
        number: JsonSchemaValue = super().decimal_schema(schema)["anyOf"][0]
        return decimal_schema(schema, number)

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        """Text such as `1+2j`; pydantic's schema admits any."""
        return {"type": "string", "format": "python-complex"}

    # text

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Text that is as long, and matches, after pydantic has taken its outer blanks away."""
        json_schema = super().str_schema(schema)
        pattern = json_schema.get("pattern")
        engine = schema.get("regex_engine", self._config.regex_engine)
        if pattern is not None and engine == "rust-regex" and not is_ecma_too(pattern):
            del json_schema["pattern"]  # it would take other texts, or none that is right
            json_schema = with_note(json_schema, "pattern", "of Rust's dialect alone")
            pattern = None
        strips = schema.get("strip_whitespace", self._config.str_strip_whitespace)
        if strips and pattern is not None:
            return with_note(json_schema, "pattern", "outer blanks are stripped before it is tried")
        if strips and json_schema.get("minLength"):
            json_schema["pattern"] = _NO_OUTER_BLANKS
        elif pattern is not None and _WIDER_IN_SCHEMAS.search(pattern):
            return with_note(json_schema, "pattern", r"Python's \s, \w and \d are Unicode's")
        return json_schema

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Text that is decoded as the configuration says."""
        json_schema = super().bytes_schema(schema)
        encoding = self._config.val_json_bytes
        if encoding != "utf8":
            lengths = [json_schema.pop(name, None) for name in ("minLength", "maxLength")]
            json_schema["format"] = "base64url"
            if encoding == "hex":
                json_schema = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
            if any(length is not None for length in lengths):
                json_schema = with_note(json_schema, "length", "the bytes are counted")
        elif "maxLength" in json_schema:
            json_schema = with_note(json_schema, "max_length", "the bytes of UTF-8 are counted")
        return json_schema

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        """JSON inside a string is not looked into by a mask."""
        return with_note(super().json_schema(schema), "contentSchema", "JSON inside a string")

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """URLs of the schemes that are allowed."""
        return _url(schema, "python-url")

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        """URLs of the schemes that are allowed, with one host or more."""
        return _url(schema, "python-multi-host-url")

    # times

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """A day; which days is checked afterwards."""
        return _temporal(super().date_schema(schema), schema, "date")

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """A time of day with an offset or without; `format: time` has leap seconds, Python none."""
        return _temporal(super().time_schema(schema), schema, "python-time")

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """A time with or without an offset, as the type says; no leap seconds."""
        constraint = schema.get("tz_constraint")
        is_aware = constraint == "aware" or isinstance(constraint, int)
        suffix = "-aware" if is_aware else "-naive" if constraint == "naive" else ""
        json_schema = _temporal(super().datetime_schema(schema), schema, f"python-datetime{suffix}")
        if isinstance(constraint, int):
            return with_note(json_schema, "tz_constraint", "one offset only")
        return json_schema

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """A duration that a timedelta can hold."""
        return _temporal(super().timedelta_schema(schema), schema, "python-timedelta")

    # listed values

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """The values that pydantic reads from JSON: `Literal[b"x"]` has none."""
        readable = [value for value in schema["expected"] if _is_readable(schema, value)]
        if not readable:
            raise _unreadable(f"no value of {schema['expected']!r}")
        return super().literal_schema({**schema, "expected": readable})

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """The members that pydantic reads from JSON: those whose value is a tuple are not."""
        readable = [member for member in schema["members"] if _is_readable(schema, member)]
        if not readable:
            raise _unreadable(f"no member of {schema['cls'].__name__}")
        return super().enum_schema({**schema, "members": readable})

    # collections

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Keys are such that pydantic reads them: digits in `dict[int, T]`."""
        return self._with_keys(super().dict_schema(schema), schema)

    def ordered_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """As `dict_schema`."""
        return self._with_keys(super().ordered_dict_schema(schema), schema)

    def counter_schema(self, schema: Any) -> JsonSchemaValue:
        """As `dict_schema`."""
        return self._with_keys(super().counter_schema(schema), schema)

    def frozendict_schema(self, schema: Any) -> JsonSchemaValue:
        """As `dict_schema`."""
        return self._with_keys(super().frozendict_schema(schema), schema)

    def _with_keys(self, json_schema: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
        if "keys_schema" not in schema:
            return json_schema
        written = self.generate_inner(schema["keys_schema"])
        keys = key_schema(written, self.resolve_ref_schema)
        if keys is not None and "enum" in keys:
            keys["enum"] = [name for name in keys["enum"] if self._reads_key(schema, name)]
        if keys is None or keys.get("enum") == []:
            kind = schema["keys_schema"]["type"]
            raise PydanticInvalidForJsonSchema(
                f"Keys of JSON objects are text, from which pydantic reads no {kind}."
            )
        values = self.generate_inner(schema["values_schema"]) if "values_schema" in schema else {}
        values = {name: value for name, value in values.items() if name != "title"}
        for keyword in ("patternProperties", "propertyNames"):
            json_schema.pop(keyword, None)
        if json_schema.get("minProperties", 0) > 1 and may_merge(
            schema["keys_schema"], self._config
        ):
            json_schema = with_note(json_schema, "min_length", _COUNTED_LATER)
        json_schema["additionalProperties"] = values or True
        if keys:
            json_schema["propertyNames"] = keys
        return json_schema

    def _reads_key(self, schema: Any, name: str) -> bool:
        """Whether pydantic reads this name as a key: `"1"` is one of an IntEnum, of no Literal."""
        pairs = core_schema.dict_schema(schema["keys_schema"])
        whole = core_schema.definitions_schema(pairs, list(self._definitions))
        try:
            SchemaValidator(whole).validate_json(to_json({name: None}))
        except ValidationError:
            return False
        return True

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        """Any array: the set itself removes what is written twice."""
        return self._set(super().set_schema(schema), schema)

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """Any array: the set itself removes what is written twice."""
        return self._set(super().frozenset_schema(schema), schema)

    def _set(self, json_schema: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
        if "minItems" not in json_schema:  # a minimum counts different items
            del json_schema["uniqueItems"]
        elif json_schema["minItems"] > 1 and may_merge(
            schema.get("items_schema", core_schema.any_schema()), self._config
        ):
            return with_note(json_schema, "min_length", _COUNTED_LATER)
        return json_schema

    # functions in Python

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        """As pydantic has it; what the function refuses is seen afterwards."""
        return _with_function(super().function_before_schema(schema), schema)

    def function_after_schema(
        self, schema: core_schema.AfterValidatorFunctionSchema
    ) -> JsonSchemaValue:
        """As pydantic has it; what the function refuses is seen afterwards."""
        return _with_function(super().function_after_schema(schema), schema)

    def function_wrap_schema(
        self, schema: core_schema.WrapValidatorFunctionSchema
    ) -> JsonSchemaValue:
        """As pydantic has it; what the function refuses is seen afterwards."""
        return _with_function(super().function_wrap_schema(schema), schema)

    def function_plain_schema(
        self, schema: core_schema.PlainValidatorFunctionSchema
    ) -> JsonSchemaValue:
        """As pydantic has it; what the function refuses is seen afterwards."""
        return _with_function(super().function_plain_schema(schema), schema)

    def chain_schema(self, schema: core_schema.ChainSchema) -> JsonSchemaValue:
        """The first step, which is what is written; the others are seen afterwards."""
        json_schema = super().chain_schema(schema)
        others = [step["type"] for step in schema["steps"][1:]]
        return with_note(json_schema, "/".join(others)) if others else json_schema

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """As pydantic has it; a model's own `__init__` may refuse what its fields take."""
        json_schema = super().model_schema(schema)
        if schema.get("custom_init"):
            json_schema = with_note(json_schema, "__init__")
        own = getattr(schema["cls"], "model_post_init", None)
        if schema.get("post_init") and name_of(own) not in (
            "BaseModel.model_post_init",
            "init_private_attributes",
        ):
            json_schema = with_note(json_schema, "model_post_init")
        return json_schema

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """As pydantic has it; `__post_init__` may refuse what the fields take."""
        json_schema = super().dataclass_schema(schema)
        return with_note(json_schema, "__post_init__") if schema.get("post_init") else json_schema


def _unreadable(what: str) -> PydanticInvalidForJsonSchema:
    return PydanticInvalidForJsonSchema(
        f"Pydantic reads {what} from JSON: list strings, numbers, true, false or null."
    )


def _with_function(json_schema: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    function = schema["function"]["function"]
    name = name_of(function)
    if name in _BY_NAME:
        json_schema = _with_floats(_BY_NAME[name]) if name == _BYTE_SIZE else _BY_NAME[name]
    if is_held(function) or name in _HELD_BY_NAME:
        return json_schema
    kind = schema["type"].removeprefix("function-")
    return with_note(json_schema, f"{kind} validator {short_name(function)}")


def _with_floats(json_schema: JsonSchemaValue) -> JsonSchemaValue:
    reason = "integers beyond 2**63 are read only where they are written out"
    return with_note(json_schema, "int", reason, notes=OPEN_NOTES)


def _temporal(json_schema: JsonSchemaValue, schema: Any, name: str) -> JsonSchemaValue:
    if json_schema.get("type") != "string":
        return with_note(json_schema, "ser_json_temporal", "numbers beyond the calendar")
    json_schema["format"] = name
    for bound in _BOUNDS:
        if schema.get(bound) is not None:
            json_schema = with_note(json_schema, bound, "no mask compares times")
    return json_schema


def _url(schema: Any, name: str) -> JsonSchemaValue:
    json_schema: JsonSchemaValue = {"type": "string", "format": name}
    if schema.get("allowed_schemes"):
        schemes = "|".join(map(re.escape, schema["allowed_schemes"]))
        json_schema["pattern"] = f"^({schemes})://"
    elif schema.get("host_required"):
        json_schema["pattern"] = "^[^:]+://[^/]"
    if schema.get("max_length") is not None:
        json_schema["maxLength"] = schema["max_length"]
    return json_schema


def _is_readable(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether pydantic reads a listed value back from the JSON that stands for it."""
    alone = {name: part for name, part in schema.items() if name not in ("ref", "metadata")}
    try:
        read = SchemaValidator(alone).validate_json(to_json(value))
    except (SchemaError, ValidationError, ValueError):
        return False
    return bool(read == value)
