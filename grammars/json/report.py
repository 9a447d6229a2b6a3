"""What became of each keyword of a schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from structspec.grammars.base import Finding, Report
from structspec.grammars.formats import format_regex
from structspec.grammars.json.expand import Expander
from structspec.grammars.json.own import (
    ARRAY_KEYWORDS,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
)
from structspec.grammars.json.plan import Plan
from structspec.grammars.json.productive import Productive
from structspec.grammars.json_schema import Document
from structspec.grammars.keywords import ANNOTATIONS, CONSTRAINTS, findings
from structspec.grammars.schema_nodes import Node

_TYPED = {*STRING_KEYWORDS, *NUMBER_KEYWORDS, *ARRAY_KEYWORDS, *OBJECT_KEYWORDS}


def make_report(
    document: Document, expander: Expander, productive: Productive, losses: frozenset[Finding]
) -> Report:
    """Every constraining keyword is enforced, unless something that was written lost it."""
    nodes = document.nodes()
    pointers = {node.pointer for node in nodes}
    losses = frozenset(_placed(finding, pointers) for finding in losses)
    lost = {(finding.pointer, finding.keyword) for finding in losses}
    enforced = tuple(f for f in findings(nodes) if (f.pointer, f.keyword) not in lost)
    changes = (*_closed(productive), *_rewrites(nodes, expander.closed), *expander.changes)
    approximated = tuple(sorted(losses, key=lambda f: (f.pointer, f.keyword, f.reason)))
    return Report("llguidance", enforced, approximated, (), changes)


def _placed(finding: Finding, pointers: set[str]) -> Finding:
    """The finding at a keyword the schema has: subschemas made for values have none of theirs."""
    pointer, keyword = finding.pointer, finding.keyword
    while pointer not in pointers:
        pointer, _, keyword = pointer.rpartition("/")
        assert pointer, finding
    return replace(finding, pointer=pointer, keyword=keyword)


def _closed(productive: Productive) -> Iterator[str]:
    plans = [
        part for parts in productive.parts.values() for part in parts if isinstance(part, Plan)
    ]
    if num_closed := sum(plan.is_closed for plan in plans):
        yield f"{num_closed} object(s) closed: only declared keys are written"


def _rewrites(nodes: list[Node], closed: bool) -> Iterator[str]:
    for node in nodes:
        schema = node.keywords()
        for keyword in schema.keys() - CONSTRAINTS - ANNOTATIONS:
            yield f"{node.pointer}: {keyword!r} is no keyword of JSON Schema, so it says nothing"
        if "allOf" in schema:
            yield f"{node.pointer}: allOf merged into one description"
        if "$ref" in schema and _TYPED & schema.keys():
            yield f"{node.pointer}: $ref merged with the keywords beside it"
        if not closed and "type" not in schema and _TYPED & schema.keys() and "$ref" not in schema:
            yield f"{node.pointer}: no type, so its keywords bind values of their own types only"
        name = schema.get("format")
        if isinstance(name, str) and format_regex(name) is None:
            yield f"{node.pointer}: the format {name!r} is not known, so it is an annotation"
