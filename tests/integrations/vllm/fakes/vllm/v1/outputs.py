"""What the worker hands to the scheduler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class DraftTokenIds:
    """Drafts by request."""

    req_ids: list[str]
    draft_token_ids: list[list[int]]
