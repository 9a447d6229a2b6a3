"""What a request may choose beside its constraint; importing it takes no package."""

from __future__ import annotations

from typing import Literal

BackendName = Literal["auto", "llguidance", "xgrammar", "outlines", "lm-format-enforcer"]
OnUnsupported = Literal["error", "validate", "ignore"]  # see structspec/policy.py

DEFAULT_MAX_ATTEMPTS = 3
