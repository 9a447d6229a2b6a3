"""How a server is set up; all of it frozen."""

from __future__ import annotations

from dataclasses import dataclass

from structspec.checks import check_integers
from structspec.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Names, limits and keys of one server.

    Without `api_keys` everybody is served. At most `max_requests` are answered at a time, those in
    the engine's queue included; more are told to come again in a second (429).
    """

    model_name: str
    api_keys: tuple[str, ...] = ()
    max_requests: int = 1024
    max_body_bytes: int = 8 * 2**20
    max_schema_bytes: int = 2**20  # of a request's schemas and grammars together
    max_choices: int = 128  # n
    max_stored_responses: int = 1000  # of /v1/responses, for previous_response_id
    drain_s: float = 30.0  # what runs may take so long to finish once the server is told to stop

    def __post_init__(self) -> None:
        check_integers(self, 1, "max_requests", "max_body_bytes", "max_schema_bytes", "max_choices")
        check_integers(self, 0, "max_stored_responses")
        if not all(self.api_keys):
            raise InvalidRequest("an API key must not be empty")
        if not self.drain_s >= 0:
            raise InvalidRequest(f"drain_s must be at least 0, not {self.drain_s!r}")
