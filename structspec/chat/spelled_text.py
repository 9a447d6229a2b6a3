"""Text with its special tokens spelled by name, which some models write calls with."""

from __future__ import annotations

from structspec.output_text import OutputText
from structspec.request import Request
from structspec.vocabulary import Vocabulary


class SpelledText:
    """A request's answer with special tokens spelled by name, in whole characters, as it grows.

    A stop string ends it as it does the text without them; what may become one is held back.
    """

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._num_read = 0  # of its tokens; 0: the answer has not begun
        self._ends = {*vocabulary.stop_token_ids, *request.params.stop_token_ids}
        self._text = OutputText(request.params.stop)

    def take(self, *, is_last: bool = False) -> str:
        """What is new since the last call."""
        request = self._request
        if not self._num_read:
            reasoning = request.reasoning
            if reasoning is not None and not reasoning.is_over and not is_last:
                return ""
            num_before = 0 if reasoning is None else reasoning.num_before
            self._num_read = request.num_prompt_tokens + num_before
        for token_id in request.token_ids[self._num_read :]:  # the engine only appends
            self._num_read += 1
            if token_id in self._ends or self._text.is_stopped:
                continue
            num_written = self._num_read - request.num_prompt_tokens
            data = self._vocabulary.token_bytes[token_id]
            data = data or self._vocabulary.spell_bytes([token_id])
            self._text.append(data, may_stop=num_written > request.params.min_tokens)
        return self._text.take_rest() if is_last else self._text.take()
