"""What new tokens mean to one request: its text, whether it ends, and its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from structspec.engine.batch import DraftSource, SamplerOutput
from structspec.request import FinishReason, Request, RequestStats
from structspec.token_detail import Origin, TokenDetail
from structspec.vocabulary import Vocabulary


def append_tokens(
    request: Request, token_ids: Sequence[int], vocabulary: Vocabulary
) -> FinishReason | None:
    """Add tokens one by one until one of them ends the request; those behind it are dropped."""
    known, token_bytes = request.token_ids, vocabulary.token_bytes
    # together many take a fraction of the time
    if len(token_ids) > 1 and not _may_end(request, token_ids, vocabulary):
        known += token_ids
        request.text.append(b"".join([token_bytes[token_id] or b"" for token_id in token_ids]))
        return None
    own_stops = request.params.stop_token_ids
    max_num_tokens = request.num_prompt_tokens + request.max_tokens
    for token_id in token_ids:
        known.append(token_id)
        if token_id in vocabulary.stop_token_ids or token_id in own_stops:
            return "stop"
        if request.append_text(token_id, token_bytes[token_id] or b""):
            return "stop"
        if len(known) >= max_num_tokens:
            return "length"
    return None


def _may_end(request: Request, token_ids: Sequence[int], vocabulary: Vocabulary) -> bool:
    """Whether any of these tokens may end the request, or is to be read by itself."""
    params = request.params
    return (
        request.num_output_tokens + len(token_ids) >= request.max_tokens
        or request.reasoning is not None
        or bool(params.stop or params.stop_token_ids)
        or not set(vocabulary.stop_token_ids).isdisjoint(token_ids)
    )


class Verified(NamedTuple):
    """What became of guesses that no grammar forces."""

    num_held: int
    num_tried: int  # these, and the first that did not hold; nobody knows of those behind it


def record_draft(
    stats: RequestStats, sources: Sequence[DraftSource], num_accepted: int, num_invalid: int
) -> Verified:
    """Count a draft of a request that was verified, certain tokens among its accepted ones."""
    num_drafted, num_left, num_held, num_tried = 0, num_accepted, 0, 0
    for name, num_tokens in sources:
        taken = min(num_left, num_tokens)
        if name != "forced" and num_drafted <= num_accepted:
            num_held += taken
            num_tried += taken + (taken < num_tokens)
        num_left -= taken
        num_drafted += num_tokens
        stats.drafted_by_source[name] = stats.drafted_by_source.get(name, 0) + num_tokens
        stats.accepted_by_source[name] = stats.accepted_by_source.get(name, 0) + taken
    stats.num_drafts += 1
    stats.num_drafted += num_drafted
    stats.num_accepted += num_accepted
    stats.num_invalid += num_invalid
    _count(stats.draft_lengths, num_drafted)
    _count(stats.accepted_lengths, num_accepted)
    return Verified(num_held, num_tried)


def tell_logprobs(
    request: Request,
    output: SamplerOutput,
    index: int,
    num_new: int,
    sources: Sequence[DraftSource],
) -> None:
    """Add what is told of its `num_new` last tokens, of which guess_certain left none certain."""
    request.logprobs += output.logprobs.get(index, ())[:num_new]
    pairs = output.raw_and_processed.get(index, ())[:num_new]
    if pairs:
        origins = _origins(sources, output.num_accepted[index])
        request.token_details += [
            TokenDetail(raw.token_id, *origin, raw.logprob, processed.logprob, processed.top)
            for origin, (raw, processed) in zip(origins, pairs, strict=False)
        ]


def _origins(
    sources: Sequence[DraftSource], num_accepted: int
) -> Iterator[tuple[Origin, str | None]]:
    """Where accepted drafts came from and who drafted them, then the token behind them."""
    drafters = [name for name, num_tokens in sources for _ in range(num_tokens)]
    for name in drafters[:num_accepted]:
        yield ("forced", None) if name == "forced" else ("drafted", name)
    yield "recovered" if len(drafters) > num_accepted else "sampled", None


def _count(lengths: list[int], length: int) -> None:
    if length >= len(lengths):
        lengths.extend([0] * (length + 1 - len(lengths)))
    lengths[length] += 1
