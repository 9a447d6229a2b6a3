"""JSON schemas for llguidance: what it cannot hold is taken out and reported, never dropped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from llguidance import LLMatcher, LLParserLimits

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from structspec.grammars.base import Finding, Report
from structspec.grammars.closed import close_objects
from structspec.grammars.json_schema import DEFINITIONS, Document, Node, parse
from structspec.grammars.keywords import ANNOTATIONS, CONSTRAINTS, findings, open_keys
from structspec.grammars.productive import check_productive

LIMITS = LLParserLimits(
    max_items_in_row=20_000,  # the default of 2,000 fails beyond some 500 optional properties
    verbose_errors=False,
)
_STYLES = {
    "spaced": {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False},
    "compact": {"item_separator": ",", "key_separator": ":", "whitespace_flexible": False},
    "flexible": {
        "item_separator": ",",
        "key_separator": ":",
        "whitespace_flexible": True,
        "whitespace_pattern": r"[ \n\r\t]{1,8}",
    },
}
# keywords it does not know
_DROPPED = (
    "not",
    "if",
    "then",
    "else",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
)
_FORMATS = {"duration", "ipv4", "ipv6", "uuid", "uri"}  # held exactly
_CLOSE_FORMATS = {
    "date": "days are not counted by month",
    "date-time": "days are not counted by month, nor leap seconds",
    "time": "leap seconds are not checked",
    "email": "only plain addresses are written",
    "hostname": "the length of labels is not checked",
}
_UNSATISFIABLE = "Unsatisfiable schema"
_MAX_REPAIRS = 100
_MAX_BLAMED = 300  # subschemas looked at to find the one an error is about
# without \u a key has one spelling only, so no escape leads round a declared key's schema
_ESCAPES_WITHOUT_U = '"\\bfnrt'


@dataclass(slots=True)
class _Lowering:
    """A document on its way to a grammar that llguidance takes."""

    document: Document
    options: dict[str, Any]
    approximated: list[Finding] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)

    def drop(self, node: Node, keyword: str, reason: str) -> None:
        """Take a keyword out of the grammar and leave it to validation."""
        del node.keywords()[keyword]
        self.approximated.append(Finding(node.pointer, keyword, reason))

    def try_grammar(self) -> tuple[str, str]:
        """The grammar, and what llguidance says against it (nothing: "")."""
        root = self.document.root
        schema = {} if isinstance(root, bool) else root
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=self.options)
        return grammar, _objection(grammar)


def lower_json(constraint: JsonSchema) -> tuple[str, Report]:
    """llguidance's grammar for a schema and the report on it; GrammarError with a pointer."""
    document = parse(constraint)
    check_productive(document)
    if constraint.style == "pretty":
        reason = "llguidance writes 'spaced', 'compact' or 'flexible'; 'pretty' needs xgrammar"
        return "", Report("llguidance", refused=(Finding("#", "style", reason),))
    changes = close_objects(document) if constraint.closed else ()
    _strip_options(document.root)
    lowering = _Lowering(document, dict(_STYLES[constraint.style]))
    enforced = findings(document.nodes())
    _drop_unknown(lowering)
    if any(open_keys(node) and node.keywords().get("properties") for node in document.nodes()):
        lowering.options["json_allowed_escapes"] = _ESCAPES_WITHOUT_U
    grammar = _repair_until_taken(lowering)
    if constraint.closed:
        lowering.approximated += _blurred_one_ofs(constraint, lowering)
    lost = {(f.pointer, f.keyword) for f in (*lowering.approximated, *lowering.refused)}
    report = Report(
        "llguidance",
        tuple(f for f in enforced if (f.pointer, f.keyword) not in lost),
        tuple(lowering.approximated),
        tuple(lowering.refused),
        changes,
    )
    return grammar, report


def _blurred_one_ofs(constraint: JsonSchema, lowering: _Lowering) -> list[Finding]:
    """`oneOf`s whose branches only exclude each other since their objects were closed.

    A value of one closed branch may match two of the branches as the user wrote them.
    """
    if lowering.options.get("coerce_one_of") or not any(
        "oneOf" in node.keywords() for node in lowering.document.nodes()
    ):
        return []
    _, report = lower_json(replace(constraint, closed=False))
    reason = "branches exclude each other as closed objects only: more than one may match"
    return [
        replace(finding, reason=reason)
        for finding in report.approximated
        if finding.keyword == "oneOf"
    ]


def _strip_options(root: Any) -> None:
    """`x-guidance` would steer llguidance past the style that was asked for."""
    if isinstance(root, dict):
        root.pop("x-guidance", None)


def _drop_unknown(lowering: _Lowering) -> None:
    """Take out what llguidance is known not to hold."""
    for node in lowering.document.nodes():
        schema = node.keywords()
        if "if" not in schema:  # then and else say nothing on their own
            schema.pop("then", None), schema.pop("else", None)
        for keyword in [keyword for keyword in _DROPPED if keyword in schema]:
            lowering.drop(node, keyword, "not part of the mask; the finished text is validated")
        name = schema.get("format")
        if name in _CLOSE_FORMATS:
            lowering.approximated.append(Finding(node.pointer, "format", _CLOSE_FORMATS[name]))
        elif name is not None and name not in _FORMATS:
            lowering.drop(node, "format", f"the mask does not know the format {name!r}")
        if open_keys(node):
            lowering.approximated.append(
                Finding(node.pointer, "additionalProperties", "a free key may come twice")
            )


def _repair_until_taken(lowering: _Lowering) -> str:
    """Give llguidance the schema, take out what it names, until it has nothing to say."""
    for _ in range(_MAX_REPAIRS):
        grammar, message = lowering.try_grammar()
        if not message:
            return grammar
        if message.startswith(_UNSATISFIABLE):
            pointer, message = _blame(lowering, message, _UNSATISFIABLE)
            raise GrammarError(message.split("\n")[0], pointer=pointer)
        if not any(repair(lowering, message) for repair in _REPAIRS):
            break
    pointer, message = _blame(lowering, message, message)
    lowering.refused.append(Finding(pointer, "schema", message.split("\n")[0]))
    return ""


def _blame(lowering: _Lowering, message: str, start: str) -> tuple[str, str]:
    """A smallest subschema that llguidance objects to in words that start so, and those words."""
    text = json.dumps(lowering.document.root).replace('"$ref": "#', '"$ref": "#/$defs/whole')
    whole = {"$defs": {"whole": json.loads(text)}}
    for node in reversed(lowering.document.nodes()[:_MAX_BLAMED]):  # parts come after their whole
        if isinstance(node.schema, bool):
            continue
        part = {**whole, "$ref": f"#/$defs/whole{node.pointer[1:]}"}
        if (complaint := _complaint(part, lowering.options)).startswith(start):
            return node.pointer, complaint
    return "#", message


def _coerce_one_of(lowering: _Lowering, message: str) -> bool:
    if "coerce_one_of" not in message or lowering.options.get("coerce_one_of"):
        return False
    lowering.options["coerce_one_of"] = True
    for node in lowering.document.nodes():
        if "oneOf" in node.keywords():
            reason = "the mask holds it as anyOf: more than one may match"
            lowering.approximated.append(Finding(node.pointer, "oneOf", reason))
    return True


def _drop_overlapping_patterns(lowering: _Lowering, message: str) -> bool:
    if "are not disjoint" not in message:
        return False
    reason = "several patterns may match one key; other keys stay as declared"
    return _drop_where(
        lowering, "patternProperties", lambda schema: len(schema["patternProperties"]) > 1, reason
    ) or _drop_where(lowering, "patternProperties", lambda schema: True, reason)


def _drop_property_counts(lowering: _Lowering, message: str) -> bool:
    if "min/maxProperties" not in message:
        return False

    def has_optional(schema: dict[str, Any]) -> bool:
        return bool(schema.get("properties", {}).keys() - set(schema.get("required", ())))

    reason = "optional keys are not counted"
    dropped = [
        _drop_where(lowering, keyword, has_optional, reason)
        for keyword in ("minProperties", "maxProperties")
    ]
    return any(dropped)


def _drop_patterns(lowering: _Lowering, message: str) -> bool:
    """Patterns llguidance cannot read: malformed ones are the user's mistake, others are left."""
    if "regex" not in message:
        return False
    dropped = False
    for node in lowering.document.nodes():
        pattern = node.keywords().get("pattern")
        if isinstance(pattern, str) and (
            complaint := _complaint({"type": "string", "pattern": pattern})
        ):
            _check_well_formed(pattern, f"{node.pointer}/pattern", complaint)
            lowering.drop(node, "pattern", f"the mask cannot hold it: {_last_line(complaint)}")
            dropped = True
        for key in list(node.keywords().get("patternProperties", ())):
            if complaint := _complaint({"type": "string", "pattern": key}):
                _check_well_formed(key, f"{node.pointer}/patternProperties", complaint)
                lowering.drop(node, "patternProperties", f"cannot hold {key!r}")
                dropped = True
                break
    return dropped


def _drop_beside_references(lowering: _Lowering, message: str) -> bool:
    """Keywords beside a `$ref`, or a union with one, that leads back to itself."""
    if "circular references with sibling keys" not in message:
        return False
    return any(_drop_beside(lowering, kept) for kept in ("$ref", "anyOf", "oneOf"))


def _drop_beside(lowering: _Lowering, kept: str) -> bool:
    dropped = False
    for node in lowering.document.nodes():
        schema = node.keywords()
        if kept != "$ref" and not any("$ref" in part for part in schema.get(kept, ()) if part):
            continue
        for keyword in schema.keys() - {kept, *DEFINITIONS} if kept in schema else ():
            if keyword in CONSTRAINTS:
                lowering.drop(node, keyword, f"not part of the mask beside a recursive {kept!r}")
                dropped = True
            elif not keyword.startswith("$"):
                del schema[keyword]
                dropped = True
    return dropped


def _drop_named(lowering: _Lowering, message: str) -> bool:
    """Keywords llguidance says it has not implemented, in the drafts it knows."""
    named = re.match(r"Unimplemented keys: (\[.*?\])", message)
    if named is None:
        return False
    keys = set(json.loads(named[1])) - ANNOTATIONS
    return any(
        [_drop_where(lowering, key, lambda schema: True, "not part of the mask") for key in keys]
    )


_REPAIRS = (
    _coerce_one_of,
    _drop_overlapping_patterns,
    _drop_property_counts,
    _drop_patterns,
    _drop_beside_references,
    _drop_named,
)


def _drop_where(
    lowering: _Lowering, keyword: str, holds: Callable[[dict[str, Any]], bool], reason: str
) -> bool:
    dropped = False
    for node in lowering.document.nodes():
        if keyword in node.keywords() and holds(node.keywords()):
            lowering.drop(node, keyword, reason)
            dropped = True
    return dropped


def _complaint(schema: dict[str, Any], options: dict[str, Any] | None = None) -> str:
    """What llguidance says against a schema; nothing: ""."""
    return _objection(LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options))


def _objection(grammar: str) -> str:
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=LIMITS)
    return messages[0] if is_error else ""


def _check_well_formed(pattern: str, pointer: str, complaint: str) -> None:
    """Raise GrammarError for a pattern nobody can read, not just llguidance."""
    if "unrecognized" in complaint or "not supported" in complaint or "lookaround" in complaint:
        return
    raise GrammarError(
        f"the regex {pattern!r} is malformed: {_last_line(complaint)}", pointer=pointer
    )


def _last_line(text: str) -> str:
    return text.strip().split("\n")[-1].removeprefix("error: ")
