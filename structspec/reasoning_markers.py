"""Between which markers a model reasons, and whether its prompt has begun to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from structspec.reasoning_boundary import BEFORE, ENDED, REASONING, Boundary, State
from structspec.reasoning_symbols import to_symbols
from structspec.vocabulary import Vocabulary


class Markers(NamedTuple):
    """The texts around reasoning, and what stands before an answer, with reasoning or without."""

    start: str
    end: str
    answer: str = ""


KNOWN = (
    Markers("<think>", "</think>"),  # DeepSeek, Qwen, GLM, Nemotron, MiniMax, Kimi K2 and others
    Markers("[THINK]", "[/THINK]"),  # Mistral
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere
    Markers("<seed:think>", "</seed:think>"),  # Seed
    Markers("<thought>", "</thought>"),  # EXAONE
    Markers("◁think▷", "◁/think▷"),  # Kimi VL
)
HARMONY = Markers(  # gpt-oss: messages on channels
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant",
    "<|channel|>final<|message|>",
)
_OF_HARMONY = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")
_BLANKS = frozenset(b" \t\r\n")


def find_markers(vocabulary: Vocabulary, chat_template: str | None) -> Markers | None:
    """Those of the known ones that are tokens of this model, or else that its template writes."""
    if set(_OF_HARMONY) <= set(vocabulary.special_tokens):
        return HARMONY
    for markers in KNOWN:
        if all(_is_token(marker, vocabulary) for marker in (markers.start, markers.end)):
            return markers
    for markers in KNOWN:
        if chat_template and all(
            marker in chat_template for marker in (markers.start, markers.end)
        ):
            return markers
    return None


def find_state(boundary: Boundary, prompt_token_ids: Sequence[int]) -> State:
    """Whether a prompt ends in a start marker, where an answer begins, or in neither; blanks aside.

    Markers further in front are those of earlier turns, or what somebody wrote about them.
    """
    closing = boundary.answer or boundary.end
    needed = max(len(boundary.start), len(closing))
    tail: list[int] = []
    for token_id in reversed(prompt_token_ids):
        tail = [*boundary.symbols_of(token_id), *tail]
        while tail and tail[-1] in _BLANKS:
            tail.pop()
        if len(tail) >= needed:
            break
    if _ends_with(tail, closing):
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
