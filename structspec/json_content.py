"""`contentEncoding` and `contentMediaType`: asserted in schemas of draft 7, annotations since."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from jsonschema.exceptions import ValidationError

Errors = Iterator[ValidationError]


def content_encoding(validator: Any, encoding: Any, value: Any, schema: Any) -> Errors:
    """`contentEncoding`: a string is decoded without an error, for base64."""
    if encoding == "base64" and isinstance(value, str) and _decoded(value) is None:
        yield ValidationError(f"{value!r} is not base64")


def content_media_type(validator: Any, media_type: Any, value: Any, schema: Any) -> Errors:
    """`contentMediaType`: a string, decoded, is a text of its type, for JSON."""
    if media_type != "application/json" or not isinstance(value, str):
        return
    data = _decoded(value) if schema.get("contentEncoding") == "base64" else value.encode()
    if data is None:
        return  # what `contentEncoding` says
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        yield ValidationError(f"{value!r} does not hold JSON")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


KEYWORDS = {"contentEncoding": content_encoding, "contentMediaType": content_media_type}
