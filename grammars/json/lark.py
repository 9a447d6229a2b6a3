"""A JSON schema as rules of a Lark grammar: the whole way from the text to the grammar."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from structspec.grammars.base import Finding, Report
from structspec.grammars.json.arrays import ArrayWriter
from structspec.grammars.json.expand import Expander
from structspec.grammars.json.layout import Layout, make_layout
from structspec.grammars.json.listed import list_values
from structspec.grammars.json.numbers import multiples_body, number_body, simplified
from structspec.grammars.json.objects import ObjectWriter
from structspec.grammars.json.plan import Plan
from structspec.grammars.json.productive import Part, Productive, find_productive
from structspec.grammars.json.report import make_report
from structspec.grammars.json.shapes import Array, Boolean, Goal, Null, Number, String
from structspec.grammars.json.strings import shadow_body, string_body
from structspec.grammars.json_schema import Document, parse
from structspec.grammars.keywords import CONSTRAINTS
from structspec.grammars.lark_text import LarkText
from structspec.grammars.schema_nodes import Node


@dataclass(frozen=True, slots=True)
class WrittenJson:
    """The rule that a schema became, and what became of each keyword.

    With `has_free_keys` the grammar alone lets a free key come twice: the matcher has to be guarded
    (`unique_keys.py`). `are_free_keys_counted`: where none does, their number may come out wrong.
    """

    rule: str
    report: Report
    has_free_keys: bool
    are_free_keys_counted: bool


def write_document(lark: LarkText, constraint: JsonSchema) -> WrittenJson:
    """Write the rules for a schema whose JSON is the whole text.

    Raises GrammarError with a JSON pointer where the schema is wrong or nothing satisfies it.
    """
    document = parse(constraint)
    expander = Expander(document, constraint.closed, '"unevaluated' in constraint.text)
    root = expander.goal(document.root_node())
    productive = find_productive(expander, root, closed=constraint.closed)
    if root not in productive:
        raise _nothing_satisfies(document, expander, productive)
    layout = make_layout(constraint.style, lark)
    writer = _Writer(lark, layout, productive, constraint, document.draft.is_integer_spelled)
    start = writer.start(root)
    report = make_report(document, expander, productive, frozenset(writer.losses))
    plans = [p for parts in productive.parts.values() for p in parts if isinstance(p, Plan)]
    open_plans = [plan for plan in plans if (plan.cells if layout.own else plan.unnamed)]
    is_counted = any(plan.min_members or plan.max_members is not None for plan in open_plans)
    return WrittenJson(start, report, bool(open_plans), is_counted)


def write_json(lark: LarkText, constraint: JsonSchema) -> tuple[str, Report]:
    """The same for JSON inside other text, where nobody watches for keys that come twice.

    A key that does breaks nothing a schema says but counts: of its values the last one is meant.
    """
    written = write_document(lark, constraint)
    report = written.report
    if written.are_free_keys_counted:
        finding = Finding("#", "minProperties", "a free key may come twice and count as two")
        report = replace(report, approximated=(*report.approximated, finding))
    elif written.has_free_keys:
        report = replace(report, changes=(*report.changes, "#: a free key may come twice"))
    return written.rule, report


def _nothing_satisfies(
    document: Document, expander: Expander, productive: Productive
) -> GrammarError:
    """The error that names the deepest subschema without a value."""
    culprits = [
        node
        for node in document.nodes()
        if (goal := expander.goal(node)) not in productive
        and (goal in productive.parts or not expander.typed(goal))
    ]
    if not culprits:
        return GrammarError("no finite value satisfies this schema", pointer="#")
    # `false` is seldom what is wrong: rather that the whole cannot do with it
    wholes = [node for node in culprits if node.schema is not False]
    culprit = (wholes or culprits)[-1]  # the deepest: parts come after their whole
    return GrammarError(
        f"no finite value satisfies this: {_why_empty(culprit)}", pointer=culprit.pointer
    )


def _why_empty(culprit: Node) -> str:
    keywords = [keyword for keyword in culprit.keywords() if keyword in CONSTRAINTS]
    if culprit.schema is False or not keywords:
        return "false admits nothing"
    if len(keywords) == 1:
        return f"its {keywords[0]} admits nothing, or requires itself for ever"
    names = f"{', '.join(keywords[:-1])} and {keywords[-1]}"
    return f"{names} admit nothing together, or require themselves for ever"


@dataclass(slots=True)
class _Writer:
    """Rules for goals, each once."""

    lark: LarkText
    layout: Layout
    productive: Productive
    constraint: JsonSchema
    is_integer_spelled: bool
    losses: set[Finding] = field(default_factory=set)
    _names: dict[Goal, str] = field(default_factory=dict)  # without the parameter
    _waiting: list[Goal] = field(default_factory=list)
    _scalars: dict[Goal, str | None] = field(default_factory=dict)

    @property
    def _is_lenient(self) -> bool:
        """Whether every spelling that JSON Schema admits is to be taken."""
        return not self.constraint.closed

    def start(self, root: Goal) -> str:
        """The name of the rule for the root."""
        name = self._deeper(root) + self.layout.start
        while self._waiting:
            goal = self._waiting.pop()
            bodies = [self._body(part) for part in self.productive.parts[goal]]
            self.lark.define(self._names[goal], " | ".join(bodies), self.layout.own)
        return name

    def value(self, goal: Goal) -> str:
        """The Lark of a goal one level in: the terminal of a scalar, else the name of a rule."""
        if goal not in self._scalars:
            self._scalars[goal] = self._as_scalar(goal)
        return self._scalars[goal] or self._deeper(goal) + self.layout.same

    def _deeper(self, goal: Goal) -> str:
        """The name of the rule for a goal one level in.

        A rule of its own goes one level in: llguidance fails on some grammars where a rule that
        recurs is itself named with another parameter than `_`.
        """
        name = self._name(goal)
        layout = self.layout
        return self.lark.rule(name + layout.deeper, layout.own) if layout.own else name

    def _name(self, goal: Goal) -> str:
        name = self._names.get(goal)
        if name is None:
            name = self._names[goal] = self.lark.reserve()
            self._waiting.append(goal)
        return name

    def _as_scalar(self, goal: Goal) -> str | None:
        parts = self.productive.parts[goal]
        if len(parts) != 1 or isinstance(parts[0], (Plan, Array)):
            return None
        return self._body(parts[0])

    def _item(self, goal: Goal) -> str | None:
        return self.value(goal) if goal in self.productive else None

    def _body(self, part: Part) -> str:
        self.losses |= part.losses
        match part:
            case Null():
                return '"null"'
            case Boolean():
                return self.lark.terminal(_either(sorted(part.values)))
            case Number():
                return self._number(part)
            case String():
                return self._string(part)
            case Array():
                return ArrayWriter(
                    self.lark, self.layout, self._item, self._choices, self.losses.add
                ).write(part)
            case Plan():
                is_any = self.constraint.property_order == "any"
                return ObjectWriter(
                    self.lark, self.layout, self.value, self.losses.add, self._is_lenient
                ).write(part, any_order=is_any)
        raise AssertionError("a part of a kind that is not written")

    def _string(self, string: String) -> str:
        body = self.lark.terminal(string_body(string, self.lark, is_lenient=self._is_lenient))
        shadow = shadow_body(string, self.lark)
        return self.lark.rule(f"{body} | {self.lark.terminal(shadow)}") if shadow else body

    def _number(self, number: Number) -> str:
        number = simplified(number)
        # to the letter of JSON Schema, 1.0 and 1e2 are integers
        is_strict = number.is_integer is True and self.is_integer_spelled
        is_lenient = not self.constraint.closed and not is_strict
        if number.multiple is not None and number.values is None:
            body = multiples_body(number, is_lenient=is_lenient)
            if body is not None:
                return self.lark.rule(body)
            self.losses.add(Finding("#", "multipleOf", "not part of the mask in this combination"))
        return self.lark.terminal(number_body(number, is_lenient=is_lenient))

    def _choices(self, goal: Goal) -> tuple[str, ...] | None:
        """All the values of a goal as Lark, where they can be listed."""
        values = list_values(self.productive.parts.get(goal, ()))
        return None if values is None else tuple(map(self._body, values.values()))


def _either(values: list[bool]) -> str:
    return " | ".join('"true"' if value else '"false"' for value in values)
