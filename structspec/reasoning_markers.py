"""Between which markers a model reasons, and whether its prompt has begun to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from structspec.errors import InvalidRequest
from structspec.reasoning import Reasoning
from structspec.reasoning_boundary import (
    BEFORE,
    ENDED,
    REASONING,
    Boundary,
    State,
    make_boundary,
    to_symbols,
)
from structspec.reasoning_matcher import ReasoningBound
from structspec.reasoning_progress import ReasoningProgress
from structspec.vocabulary import Vocabulary


class Markers(NamedTuple):
    """The texts around reasoning."""

    start: str
    end: str


KNOWN = (
    Markers("<think>", "</think>"),  # DeepSeek, Qwen, GLM, Nemotron, MiniMax, Kimi K2 and others
    Markers("[THINK]", "[/THINK]"),  # Mistral
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere
    Markers("<seed:think>", "</seed:think>"),  # Seed
    Markers("<thought>", "</thought>"),  # EXAONE
    Markers("◁think▷", "◁/think▷"),  # Kimi VL
)
_BLANKS = frozenset(b" \t\r\n")


def find_markers(vocabulary: Vocabulary, chat_template: str | None) -> Markers | None:
    """Those of the known ones that are tokens of this model, or else that its template writes."""
    for markers in KNOWN:
        if all(_is_token(marker, vocabulary) for marker in markers):
            return markers
    for markers in KNOWN:
        if chat_template and all(marker in chat_template for marker in markers):
            return markers
    return None


def plan_reasoning(
    wish: Reasoning | None,
    known: Markers | None,
    vocabulary: Vocabulary,
    prompt_token_ids: Sequence[int],
    max_tokens: int,
    *,
    is_constrained: bool,
) -> tuple[ReasoningBound | None, ReasoningProgress | None]:
    """What bounds a request's reasoning and what follows it, as far as there is a need for them.

    Raises InvalidRequest where reasoning is asked of a model whose markers nobody knows.
    """
    wanted = wish or Reasoning()
    if wanted.start is not None and wanted.end is not None:
        known = Markers(wanted.start, wanted.end)
    if known is None:
        if wanted.mode == "on" or wanted.max_tokens is not None:
            raise InvalidRequest(
                "neither the tokenizer nor the chat template of this model names markers of"
                " reasoning; pass reasoning=Reasoning(start=…, end=…)"
            )
        return None, None
    boundary = make_boundary(vocabulary, *known, wanted.line_breaks)
    initial = find_state(boundary, vocabulary, prompt_token_ids)
    if initial == ENDED and wanted.mode == "on":
        initial = State(BEFORE)
    is_off = wanted.mode == "off"
    if initial == ENDED or (is_off and is_constrained and initial.phase == BEFORE):
        return None, None
    is_asked = wanted.mode != "auto" or wanted.max_tokens is not None
    bound = ReasoningBound(
        boundary,
        initial,
        max_tokens,
        0 if is_off else wanted.max_tokens,
        wanted.answer_share,
        is_required=wanted.mode == "on" and initial.phase == BEFORE,
    )
    return bound if is_constrained or is_asked else None, ReasoningProgress(boundary, initial)


def find_state(
    boundary: Boundary, vocabulary: Vocabulary, prompt_token_ids: Sequence[int]
) -> State:
    """Whether a prompt ends in a start marker, in an end marker, or in neither; blanks aside.

    Markers further in front are those of earlier turns, or what somebody wrote about them.
    """
    needed = max(len(boundary.start), len(boundary.end))
    tail: list[int] = []
    for token_id in reversed(prompt_token_ids):
        tail = [*boundary.symbols_of(token_id), *tail]
        while tail and tail[-1] in _BLANKS:
            tail.pop()
        if len(tail) >= needed:
            break
    if _ends_with(tail, boundary.end):
        return ENDED
    if not boundary.start or _ends_with(tail, boundary.start):
        return State(REASONING)
    return State(BEFORE)


def _ends_with(symbols: Sequence[int], marker: Sequence[int]) -> bool:
    """Whether a text without blanks at its end is one that ends in a marker."""
    wanted = [*marker]
    while wanted and wanted[-1] in _BLANKS:
        wanted.pop()
    return [*symbols[len(symbols) - len(wanted) :]] == wanted


def _is_token(marker: str, vocabulary: Vocabulary) -> bool:
    symbols = to_symbols(marker, vocabulary)
    return symbols[0] >= 256 or marker.encode() in vocabulary.token_bytes
