"""Where the tokens of a chat's choice came from, as it tells them: the object `structspec`."""

from __future__ import annotations

from typing import Any

from structspec.chat.logprobs import FLOOR, LogprobsReader, token_of, top_of
from structspec.token_detail import TokenDetail


class TokenDetailsReader(LogprobsReader):
    """Those of one request's answer as they come: without its reasoning and stop tokens."""

    @property
    def is_on(self) -> bool:
        """Whether they were asked for."""
        return self._request.params.token_details is not None

    def take(self) -> list[dict[str, Any]]:
        """New entries of `structspec.tokens`."""
        return [self._detail(one) for one in self.unread(self._request.token_details)]

    def body(self, *, is_last: bool) -> dict[str, Any]:
        """The new ones, and with the last the request's statistics."""
        stats = {"stats": self._request.stats.to_dict()} if is_last else {}
        return {"tokens": self.take(), **stats}

    def _detail(self, one: TokenDetail) -> dict[str, Any]:
        return {
            **token_of(one, one.logprob),
            "masked_logprob": max(one.masked_logprob, FLOOR),
            "origin": one.origin,
            "drafter": one.drafter,
            "top": top_of(one),
        }
