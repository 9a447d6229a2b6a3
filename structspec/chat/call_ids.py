"""What calls of tools are known by, where a framework wants to know them by something."""

from __future__ import annotations

import secrets


def new_call_id() -> str:
    """Nine letters and digits: what the templates of some families insist on."""
    return secrets.token_hex(5)[:9]
