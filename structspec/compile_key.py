"""Telling constraints apart: equal digests compile to the same grammar."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

from structspec.constraint import Constraint, JsonSchema
from structspec.json_annotations import ANNOTATIONS, without_annotations

_ANNOTATIONS = tuple(f'"{name}"' for name in ANNOTATIONS)
_MAX_STRIPPED = 65_536  # longer schemas are told apart by their descriptions too: it is quicker


def constraint_digest(constraint: Constraint) -> str:
    """A hash of what the constraint means: what only describes a schema is left out.

    Raises TypeError where the constraint is not made of text.
    """
    parts = constraint.key
    # a reference may lead to an example, and make a schema of it
    is_plain = isinstance(constraint, JsonSchema) and "/examples" not in parts[1]
    is_noted = is_plain and any(name in parts[1] for name in _ANNOTATIONS)
    if is_noted and len(parts[1]) <= _MAX_STRIPPED:
        with suppress(RecursionError):  # too deep to compile, too
            stripped = without_annotations(json.loads(parts[1]))
            parts = (parts[0], json.dumps(stripped, ensure_ascii=False), *parts[2:])
    return digest_of(parts)


def digest_of(parts: tuple[str, ...]) -> str:
    """A hash of these texts and where each one ends."""
    digest = hashlib.sha256()
    for part in parts:
        data = str.encode(part, "utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
