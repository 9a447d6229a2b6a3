"""Whether a schema is one, and the draft that it is read in: as a grammar, and to check a text."""

from __future__ import annotations

import json
import re
import sys
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError

from structspec.constraint import TOO_DEEP, escape, find_half_character
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.keyword_values import TYPES, looks_right, wrong_in_every_draft
from structspec.grammars.schema_drafts import NEWEST, Draft, draft_named, draft_of_forms
from structspec.grammars.schema_nodes import Node, Schema, subschemas

_MAX_MESSAGE = 300
_MAX_NUMBER = sys.float_info.max
_DRAFT_3_WORDS = {"extends": "allOf", "disallow": "not", "divisibleBy": "multipleOf"}
# patterns are ECMAScript's, which Python's `re` cannot judge: a backend does
_NO_FORMATS = jsonschema.FormatChecker(formats=())
# without these no text and no number in a schema's canonical JSON is more than libraries hold
_DOUBTFUL = re.compile("[\ud800-\udfff]|NaN|Infinity|[0-9]{309}")


def read_draft(root: Schema) -> Draft:
    """The draft that a schema names; else the newest that knows the forms of all its keywords.

    Raises GrammarError, with a JSON pointer, where a keyword has no value of its kind.
    """
    _check_values(root)
    return _read(root)


@lru_cache(maxsize=256)
def draft_of_text(text: str) -> Draft:
    """The draft of a schema in canonical JSON; remembered, for its check and its grammar ask."""
    root = json.loads(text)
    if _DOUBTFUL.search(text) is not None:
        _check_values(root)
    return _read(root)


def _read(root: Schema) -> Draft:
    if not isinstance(root, dict):
        return NEWEST
    if not isinstance(root.get("$schema", ""), str):
        raise GrammarError("$schema is the URI of a draft", pointer="#/$schema")
    nodes = [node for node in subschemas(Node("#", root)) if isinstance(node.schema, dict)]
    draft = draft_named(root) or draft_of_forms(node.keywords() for node in nodes)
    is_old = draft.is_integer_spelled
    doubtful = [n for n in nodes if not looks_right(n.keywords(), is_old_draft=is_old)]
    if doubtful:
        _check_meta_schema(root, draft)
    for node in doubtful:
        # the meta-schema took it, which may only mean that the draft does not know the keyword
        if (keyword := wrong_in_every_draft(node.keywords())) is not None:
            raise GrammarError(
                f"{keyword} cannot be {_shorten(repr(node.keywords()[keyword]))}",
                pointer=f"{node.pointer}/{keyword}",
            )
    if draft.name == "3":
        _check_no_draft_3(nodes)
    return draft


def _check_values(root: Schema) -> None:
    """Raise GrammarError for text and numbers that Python can hold and the libraries cannot."""
    waiting: list[tuple[str, Any]] = [("#", root)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, dict):
            for key in value:
                _check_text(key, pointer)
            waiting += [(f"{pointer}/{escape(key)}", item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
        elif isinstance(value, str):
            _check_text(value, pointer)
        elif isinstance(value, float) and value != value:
            raise GrammarError("NaN is not JSON", pointer=pointer)
        elif isinstance(value, int | float) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise GrammarError(f"a number beyond {_MAX_NUMBER:g} cannot be held", pointer=pointer)


def _check_text(text: str, pointer: str) -> None:
    if find_half_character(text) is not None:
        raise GrammarError(f"{text!r} holds half a surrogate pair", pointer=pointer)


def _check_no_draft_3(nodes: list[Node]) -> None:
    """Raise for what draft 3 alone says: forms that are wrong elsewhere are found already."""
    for node in nodes:
        for keyword, newer in _DRAFT_3_WORDS.items():
            if keyword in node.keywords():
                raise UnsupportedConstraint(
                    f"{keyword!r} of draft 3 is not read; write {newer!r} and name a newer draft",
                    pointer=f"{node.pointer}/{keyword}",
                )


def _check_meta_schema(root: Schema, draft: Draft) -> None:
    """Raise GrammarError unless every keyword has a value of its kind."""
    try:
        draft.validator.check_schema(root, format_checker=_NO_FORMATS)
    except RecursionError:
        raise GrammarError(TOO_DEEP, pointer="#") from None
    except SchemaError as error:
        where = "#" + "".join(f"/{escape(str(part))}" for part in error.absolute_path)
        named = f" (by {root['$schema']})" if isinstance(root, dict) and draft_named(root) else ""
        raise GrammarError(f"{_flaw(error)}{named}", pointer=where) from None


def _flaw(error: SchemaError) -> str:
    """What the meta-schema says, in words where its own would be a list of schemas."""
    path: list[Any] = list(error.absolute_path)
    if error.validator == "anyOf" and path and path[-1] == "type":
        known = ", ".join(sorted(TYPES))
        return f"{_shorten(repr(error.instance))} is not a type; use one of {known}"
    return _shorten(str(error.message))


def _shorten(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"
