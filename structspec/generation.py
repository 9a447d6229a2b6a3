"""What a finished request becomes: a Generation, or the error that says why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.common_subsequence import count_common
from structspec.constraint import Constraint, JsonSchema, Tools
from structspec.errors import GenerationError, Truncated
from structspec.grammars.base import CompiledGrammar, Report
from structspec.options import Task
from structspec.request import NO_USAGE, FinishReason, Request, RequestStats, Usage
from structspec.token_detail import TokenDetail
from structspec.token_logprob import TokenLogprob
from structspec.token_spelling import spelled
from structspec.tool_answer import read_answer
from structspec.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished output; `value` is what the call asked for (the text itself without schema=).

    `token_ids` holds the written tokens, the stop token and those of reasoning included; `text` is
    the answer alone, `reasoning` what the model wrote before it, None where it did not. `report`
    says what of the constraint the mask enforced; None without one. `usage` counts all attempts,
    `stats` are those of the last, which gave the value. `logprobs` and `token_details` have an
    entry for each of `token_ids` and `prompt_logprobs` one for each token of the prompt but the
    first, where they were asked for. A server tells no `token_ids`, and logprobs of the answer.
    """

    value: Any
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    stats: RequestStats
    report: Report | None
    num_attempts: int = 1
    reasoning: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    token_details: tuple[TokenDetail, ...] | None = None


def to_generation(
    request: Request,
    task: Task,
    vocabulary: Vocabulary,
    *,
    num_attempts: int = 1,
    spent: Usage = NO_USAGE,
) -> Generation:
    """The result of a finished request; raises what it ended with, or what is wrong with it.

    `num_attempts` counts this request, `spent` is what those before it used.
    """
    assert request.is_finished and request.finish_reason is not None
    usage = spent + request.usage
    try:
        return _to_generation(request, task, vocabulary, num_attempts, usage)
    except GenerationError as error:
        raise _with_output(error, request.text.text, usage, num_attempts) from error.__cause__


def _to_generation(
    request: Request, task: Task, vocabulary: Vocabulary, num_attempts: int, usage: Usage
) -> Generation:
    assert request.finish_reason is not None
    if request.error is not None:
        raise request.error
    _count_predicted(request)
    compiled = request.compiled.result() if request.compiled is not None else None
    params = request.params
    return Generation(
        value=_to_value(request, task, compiled, vocabulary),
        text=request.text.text,
        token_ids=tuple(request.output_token_ids),
        finish_reason=request.finish_reason,
        usage=usage,
        stats=request.stats,
        report=compiled.report if compiled is not None else None,
        num_attempts=num_attempts,
        reasoning=_reasoning_of(request),
        logprobs=None if params.logprobs is None else spelled(request.logprobs, vocabulary),
        prompt_logprobs=(
            None if params.prompt_logprobs is None else spelled(request.prompt_logprobs, vocabulary)
        ),
        token_details=(
            None if params.token_details is None else spelled(request.token_details, vocabulary)
        ),
    )


def _reasoning_of(request: Request) -> str | None:
    reasoning = request.reasoning
    return reasoning.text.text if reasoning is not None and reasoning.has_begun else None


def _count_predicted(request: Request) -> None:
    """How many tokens of the prediction appear in the output, in its order, and how many do not."""
    prediction, stats = request.prediction_token_ids, request.stats
    if prediction:
        num_common = count_common(prediction, request.output_token_ids)
        stats.accepted_prediction_tokens = num_common
        stats.rejected_prediction_tokens = len(prediction) - num_common


def _to_value(
    request: Request, task: Task, compiled: CompiledGrammar | None, vocabulary: Vocabulary
) -> Any:
    text = request.text.text
    is_cut = request.finish_reason == "length" or request.text.is_stopped
    if compiled is None:
        return text
    target = task.target
    must_end = target is not None and not target.reads_markers
    token_ids = request.answer_token_ids
    if request.reasoning is not None and not request.reasoning.is_over:
        raise Truncated(_why_no_answer(request))
    if is_cut and not is_complete(text, token_ids, compiled, vocabulary, must_end=must_end):
        raise Truncated(_why_cut(request, task.constraint))
    if target is None:
        return text
    if target.reads_markers and not request.text.is_stopped:
        stops = {*vocabulary.stop_token_ids, *request.params.stop_token_ids}
        written = [t for t in token_ids if t not in stops]
        text = vocabulary.spell_bytes(written).decode(errors="replace")
    is_ignored = task.on_unsupported == "ignore" and not compiled.report.exact
    return read_answer(target.read(text) if is_ignored else target.validate(text), task)


def is_complete(
    text: str,
    token_ids: Sequence[int],
    compiled: CompiledGrammar,
    vocabulary: Vocabulary,
    *,
    must_end: bool,
) -> bool:
    """Whether `text`, a beginning of what these tokens spell, is a text of the grammar.

    With `must_end` only one that nothing can follow: a JSON number cut off is a number still, but
    not the one that was meant.
    """
    matcher = compiled.matcher()
    if not all(matcher.accept(token_id) for token_id in _within(text, token_ids, vocabulary)):
        return False
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0)
    allowed = np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size))
    may_stop = bool(np.isin(allowed, vocabulary.stop_token_ids).any())
    return may_stop and not (must_end and len(allowed) > len(vocabulary.stop_token_ids))


def _within(text: str, token_ids: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """The tokens that were written of this text; what is left of one cut in two is spelled anew."""
    within: list[int] = []
    num_bytes, data = 0, text.encode()
    for token_id in token_ids:
        end = num_bytes + len(vocabulary.token_bytes[token_id] or b"")
        if end > len(data):
            break
        within.append(token_id)
        num_bytes = end
    return within + vocabulary.encode_text(data[num_bytes:].decode(errors="ignore"))


# What was not complete, and what would have helped beside a larger max_tokens.
_OF_JSON = ("JSON was", "bound the schema (maxLength, maxItems, maximum; a recursive one in depth)")
_OF_TOOLS = ("tool calls were", "pass parallel=False for one call, and bound its parameters")
_OF_TEXT = ("text was", "let the constraint end it sooner")


def _why_no_answer(request: Request) -> str:
    return (
        f"the output was cut after {request.num_output_tokens} tokens (max_tokens), before its"
        " reasoning was over; raise max_tokens"
    )


def _why_cut(request: Request, constraint: Constraint | None) -> str:
    kind, remedy = _OF_TEXT
    if isinstance(constraint, JsonSchema):
        kind, remedy = _OF_JSON
    elif isinstance(constraint, Tools):
        kind, remedy = _OF_TOOLS
    if request.text.is_stopped:
        return (
            f"the stop string {request.text.stop_string!r} cut the output before its {kind}"
            " complete; leave it out of stop=, or let the constraint end the text"
        )
    return (
        f"the output was cut after {request.num_output_tokens} tokens (max_tokens) before its"
        f" {kind} complete; raise max_tokens, or {remedy}"
    )


def _with_output(
    error: GenerationError, text: str, usage: Usage, num_attempts: int
) -> GenerationError:
    """The same error, carrying the last text and the usage of all attempts."""
    attempts = f" (attempt {num_attempts})" if num_attempts > 1 else ""
    return type(error)(f"{error}{attempts}", text=text, usage=usage, errors=error.errors)
