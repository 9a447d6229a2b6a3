"""Text with its special tokens spelled by name, which some models write calls with."""

from __future__ import annotations

import codecs

from structspec.request import Request
from structspec.vocabulary import Vocabulary


class SpelledText:
    """A request's answer with special tokens spelled by name, in whole characters, as it grows."""

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._num_read = 0  # of its tokens; 0: the answer has not begun
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def take(self, *, is_last: bool = False) -> str:
        """What is new since the last call."""
        if not self._num_read:
            reasoning = self._request.reasoning
            if reasoning is not None and not reasoning.is_over and not is_last:
                return ""
            num_before = 0 if reasoning is None else reasoning.num_before
            self._num_read = self._request.num_prompt_tokens + num_before
        new = self._request.token_ids[self._num_read :]  # the engine only appends
        self._num_read += len(new)
        stops = self._vocabulary.stop_token_ids
        written = [token_id for token_id in new if token_id not in stops]
        return self._decode(self._vocabulary.spell_bytes(written), is_last)
