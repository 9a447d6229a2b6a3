"""How a client reaches its server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from structspec.checks import check_integers
from structspec.errors import InvalidRequest

_KEY = "STRUCTSPEC_API_KEY"


def api_url(base_url: str) -> str:
    """Where OpenAI's API is: below `/v1` of a URL without a path; raises InvalidRequest."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(
            f"base_url must be a URL as http://localhost:8000/v1, not {base_url!r}"
        )
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where, with which key, and how patiently.

    A `base_url` without a path means OpenAI's API below `/v1`. Without an `api_key` it is that of
    the environment's STRUCTSPEC_API_KEY, if there is one.
    """

    base_url: str
    api_key: str | None
    timeout_s: float
    max_retries: int
    max_concurrency: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", api_url(self.base_url))
        check_integers(self, 0, "max_retries")
        check_integers(self, 1, "max_concurrency")
        if not self.timeout_s > 0:
            raise InvalidRequest(f"timeout_s must be above 0, not {self.timeout_s!r}")

    def url(self, path: str) -> str:
        """A path from the base URL, or a whole URL as it is."""
        return path if "://" in path else f"{self.base_url}/{path}"

    @property
    def headers(self) -> dict[str, str]:
        """Those of every request."""
        key = self.api_key or os.environ.get(_KEY)
        return {"authorization": f"Bearer {key}"} if key else {}
