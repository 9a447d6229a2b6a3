"""How a server is set up; all of it frozen."""

from __future__ import annotations

import re
from dataclasses import dataclass

from structspec.checks import check_integers
from structspec.errors import InvalidRequest

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Names, limits and keys of one server.

    Without `api_keys` everybody is served. At most `max_requests` choices are written at a time,
    those in the engine's queue included, and their requests' bodies hold `max_total_body_bytes`;
    who asks for more is told to come again in a second (429). Pages of `allowed_origins` may ask
    from a browser, and show what they are answered; "*" are all.
    """

    model_name: str
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_requests: int = 1024
    max_body_bytes: int = 8 * 2**20
    max_total_body_bytes: int = 2**28  # of all requests that are being read or answered
    max_schema_bytes: int = 2**20  # of a request's schemas and grammars together
    max_choices: int = 128  # n, times the prompts of a completion
    max_stored_responses: int = 1000  # of /v1/responses, for previous_response_id
    body_timeout_s: float = 60.0  # for all of a body to come
    drain_s: float = 30.0  # what runs may take so long to finish once the server is told to stop

    def __post_init__(self) -> None:
        check_integers(self, 1, "max_requests", "max_body_bytes", "max_schema_bytes", "max_choices")
        check_integers(self, self.max_body_bytes, "max_total_body_bytes")
        check_integers(self, 0, "max_stored_responses")
        if not all(self.api_keys):
            raise InvalidRequest("an API key must not be empty")
        for origin in self.allowed_origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InvalidRequest(
                    f"an allowed origin is '*' or like https://example.com:8080, not {origin!r}"
                )
        for name in ("drain_s", "body_timeout_s"):
            seconds = getattr(self, name)
            if not seconds >= 0:
                raise InvalidRequest(f"{name} must be at least 0, not {seconds!r}")
