"""What becomes of the finished text of tool calls and structural tags, JSON and all."""

from __future__ import annotations

import json
from functools import partial

from structspec.constraint import Constraint, StructuralTag, Tools
from structspec.errors import GrammarError, OutputInvalid
from structspec.grammars.form import Form, Json
from structspec.grammars.form_reading import is_readable, reads
from structspec.grammars.structural_tag import read_tag
from structspec.schema import SchemaTarget
from structspec.tool_calls import broken, parse_tool_calls, validate_tool_calls


def target_of(constraint: Constraint | None) -> SchemaTarget | None:
    """How the text of this constraint is checked and read; None where there is no way to.

    Tools give their calls or the answer, see `parse_tool_calls`; a tag gives its text. Grammars
    inside a tag are not parsed, so it cannot be checked then.
    """
    match constraint:
        case Tools():
            validate = partial(validate_tool_calls, tools=constraint)
            read = partial(parse_tool_calls, tools=constraint)
            return SchemaTarget({}, validate, read, "tool calls", reads_markers=True)
        case StructuralTag():
            try:
                form = read_tag(constraint)
            except GrammarError:  # the compiler says so, and with more to say
                return None
            if not is_readable(form):
                return None
            check = partial(_check_tag, form)
            return SchemaTarget({}, check, str, "structural tag", reads_markers=True)
    return None


def _check_tag(form: Form, text: str) -> str:
    """The text, if there is a way to read it in which all its JSON conforms."""
    violations: dict[str, None] = {}

    def is_right(part: Json, written: str) -> bool:
        found = broken(part.constraint.text, written, "")
        violations.update(
            dict.fromkeys(f"{part.pointer}: {json.dumps(written)}: {one}" for one in found)
        )
        return not found

    if reads(form, text, is_right):
        return text
    errors = tuple(violations) or ("#: the text does not follow the tag",)
    raise OutputInvalid(
        f"the output's JSON does not conform: {'; '.join(errors)}", text=text, errors=errors
    )
