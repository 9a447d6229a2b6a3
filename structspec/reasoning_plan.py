"""What a call's wish about reasoning means for one request of one model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from structspec.ending_search import EndingSearch
from structspec.errors import InvalidRequest
from structspec.grammars.wrapping import Wrapper
from structspec.reasoning import Reasoning
from structspec.reasoning_boundary import BEFORE, ENDED, Boundary, State
from structspec.reasoning_markers import Markers, find_markers, find_state
from structspec.reasoning_matcher import ReasoningBound
from structspec.reasoning_prefix import AnswerPrefix
from structspec.reasoning_progress import ReasoningProgress
from structspec.vocabulary import Vocabulary


class ReasoningPlan(NamedTuple):
    """Of one request: what goes around its matcher, and what tells its tokens apart."""

    wrappers: tuple[Wrapper, ...] = ()
    progress: ReasoningProgress | None = None


class Reasoner:
    """Knows a model's markers and plans the reasoning of its requests; thread-safe."""

    def __init__(self, vocabulary: Vocabulary, chat_template: str | None) -> None:
        self._vocabulary = vocabulary
        self._chat_template = chat_template
        self._make_boundary = lru_cache(maxsize=16)(self._boundary)

    def template_options(self, wish: Reasoning | None) -> dict[str, Any]:
        """What chat templates are told, by the names that most of them know."""
        if wish is None or wish.mode == "auto":
            return {}
        return dict.fromkeys(("enable_thinking", "thinking"), wish.mode == "on")

    def plan(
        self,
        wish: Reasoning | None,
        prompt_token_ids: Sequence[int],
        max_tokens: int,
        *,
        is_constrained: bool,
        marks_answers: bool = False,
        ending: EndingSearch | None = None,
    ) -> ReasoningPlan:
        """What bounds a request's reasoning and follows it, as far as there is a need for them.

        Free text is bounded only where that was asked for. With `marks_answers` its constraint
        writes what stands before an answer itself. Raises InvalidRequest where reasoning is asked
        of a model whose markers nobody knows.
        """
        asked = wish or Reasoning()
        markers = self._markers_of(asked)
        if markers is None:
            return ReasoningPlan()
        if marks_answers:
            markers = markers._replace(answer="")
        boundary = self._make_boundary(markers, asked.line_breaks)
        initial = find_state(boundary, prompt_token_ids)
        is_off, is_on = asked.mode == "off", asked.mode == "on"
        if initial == ENDED and is_on:
            initial = State(BEFORE)
        if initial == ENDED:
            return ReasoningPlan()
        if is_off and is_constrained and initial.phase == BEFORE:
            if not boundary.answer:
                return ReasoningPlan()
            prefix = AnswerPrefix(boundary.answer_ids)
            return ReasoningPlan((prefix,), ReasoningProgress(boundary, ENDED))
        progress = ReasoningProgress(boundary, initial)
        if not (is_constrained or is_off or is_on or asked.max_tokens is not None):
            return ReasoningPlan((), progress)
        bound = ReasoningBound(
            boundary,
            initial,
            max_tokens,
            0 if is_off else asked.max_tokens,
            asked.answer_share,
            is_required=is_on and initial.phase == BEFORE,
            ending=ending,
        )
        return ReasoningPlan((bound,), progress)

    def _markers_of(self, asked: Reasoning) -> Markers | None:
        if asked.start is not None and asked.end is not None:
            return Markers(asked.start, asked.end)
        if self._known is None and (asked.mode == "on" or asked.max_tokens is not None):
            raise InvalidRequest(
                "neither the tokenizer nor the chat template of this model names markers of"
                " reasoning; pass reasoning=Reasoning(start=…, end=…)"
            )
        return self._known

    @cached_property
    def _known(self) -> Markers | None:
        return find_markers(self._vocabulary, self._chat_template)

    def _boundary(self, markers: Markers, line_breaks: int) -> Boundary:
        return Boundary(
            self._vocabulary,
            markers.start,
            markers.end,
            0 if markers.answer else line_breaks,
            markers.answer,
        )
