"""`structspec generate`: one prompt, one output on stdout."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from structspec.cli.inputs import load_schema, read_file
from structspec.cli.logits import read_logit_bias
from structspec.cli.reasoning import read_reasoning
from structspec.cli.speculation import check_speculation, read_prediction, read_speculation
from structspec.config import EngineConfig

if TYPE_CHECKING:
    from structspec.generation import Generation
    from structspec.request import RequestStats
    from structspec.token_detail import TokenDetail
    from structspec.token_logprob import TokenLogprob

PASSED_ON = (
    *("regex", "backend", "on_unsupported", "max_attempts", "style", "property_order", "closed"),
    *("schema_in_prompt", "temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "stop"),
    *("min_tokens", "bad_words", "allowed_token_ids", "stop_token_ids"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logprobs", "logprobs_mode", "prompt_logprobs", "token_details", "retry_feedback"),
    *("speculative", "max_reasoning_tokens"),
)


def run_generate(options: argparse.Namespace) -> int:
    """Generate and print; errors are raised."""
    prompt = read_prompt(options)
    arguments = read_arguments(options)  # before the model is loaded: mistakes show at once
    from rich.console import Console

    check(arguments, options.n)
    speculative = read_speculation(options)
    check_speculation(options, speculative)
    config = EngineConfig(speculative=speculative)
    # Only a person who waits sees it: on a terminal, and gone before the output comes.
    with Console(stderr=True).status(f"Loading {options.model}") as status:
        from structspec.llm import LLM

        with LLM(options.model, device=options.device, config=config) as llm:
            status.update("Writing")
            generations = llm.generate_raw(prompt, n=options.n, **arguments)
    for generation in generations:
        is_json = options.schema is not None
        print(as_json(generation, is_json=is_json) if options.raw else generation.text)
        if options.stats:
            print(describe(generation), file=sys.stderr)
    return 0


def check(arguments: dict[str, Any], num_outputs: int = 1) -> None:
    """Raise what is wrong with the arguments; a constraint is compiled for a vocabulary of bytes.

    That takes milliseconds, where loading a model to be told of an open bracket takes seconds.
    """
    from structspec.added_findings import with_unheld
    from structspec.compiler import GrammarCompiler
    from structspec.options import check_n, resolve_options
    from structspec.policy import check_report
    from structspec.vocabulary import Vocabulary

    check_n(num_outputs)
    task = resolve_options(arguments)  # type: ignore[arg-type]
    if task.constraint is not None:
        compiler = GrammarCompiler(Vocabulary.bytes(), num_threads=1)
        try:
            report = compiler.submit(task.constraint, task.backend).result().report
            report = with_unheld(report, task.unheld)
            check_report(report, task.constraint, task.on_unsupported)
        finally:
            compiler.close()


def read_prompt(options: argparse.Namespace) -> str:
    """The prompt from the command line, a file or stdin."""
    if options.prompt is not None:
        return str(options.prompt)
    return read_file(options.prompt_file)


def read_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `LLM.generate_raw` that the command line stands for."""
    arguments = {name: getattr(options, name) for name in PASSED_ON}
    arguments["choices"] = options.choice
    if options.schema is not None:
        arguments["schema"] = load_schema(options.schema)
    if options.grammar is not None:
        arguments["grammar"] = read_file(options.grammar)
    arguments["prediction"] = read_prediction(options)
    arguments["logit_bias"] = read_logit_bias(options)
    arguments["reasoning"] = read_reasoning(options)
    return {name: value for name, value in arguments.items() if value is not None}


def as_json(generation: Generation, *, is_json: bool) -> str:
    """The whole Generation as one JSON object."""
    return json.dumps(
        {
            "value": json.loads(generation.text) if is_json else generation.text,
            "text": generation.text,
            "reasoning": generation.reasoning,
            "token_ids": generation.token_ids,
            **_logprobs_as_json(generation),
            "finish_reason": generation.finish_reason,
            "usage": dataclasses.asdict(generation.usage),
            "stats": generation.stats.to_dict(),
            "num_attempts": generation.num_attempts,
            "report": None if generation.report is None else dataclasses.asdict(generation.report),
        },
        ensure_ascii=False,
    )


def _logprobs_as_json(generation: Generation) -> dict[str, Any]:
    names = ("logprobs", "prompt_logprobs", "token_details")
    told = {name: getattr(generation, name) for name in names}
    return {
        name: [_told_as_json(one) for one in entries]
        for name, entries in told.items()
        if entries is not None
    }


def _told_as_json(one: TokenLogprob | TokenDetail) -> dict[str, Any]:
    """With bytes as numbers: they need not be whole characters."""
    data = None if one.data is None else [*one.data]
    top_data = [None if each is None else [*each] for each in one.top_data]
    return {**dataclasses.asdict(one), "data": data, "top_data": top_data}


def describe(generation: Generation) -> str:
    """What it took, in one line."""
    stats, num_tokens = generation.stats, generation.usage.completion_tokens
    parts = [
        f"{num_tokens} tokens in {stats.num_target_steps} target steps",
        f"{num_tokens / max(1, stats.num_target_steps):.2f} tokens per step",
        f"{stats.num_accepted} of {stats.num_drafted} drafts accepted{_by_source(stats)}",
        f"{stats.seconds:.2f} s ({num_tokens / max(stats.seconds, 1e-9):.0f} tokens/s)",
    ]
    if stats.num_invalid:
        parts.append(f"{stats.num_invalid} drafted where the grammar forbids them")
    if stats.accepted_prediction_tokens or stats.rejected_prediction_tokens:
        num_predicted = stats.accepted_prediction_tokens + stats.rejected_prediction_tokens
        parts.append(f"{stats.accepted_prediction_tokens} of {num_predicted} predicted tokens held")
    if stats.backend is not None:
        parts.append(f"compiled by {stats.backend} in {stats.compile_ms:.1f} ms")
    if generation.usage.reasoning_tokens:
        parts.append(f"{generation.usage.reasoning_tokens} tokens of reasoning")
    if generation.num_attempts > 1:
        parts.append(f"attempt {generation.num_attempts}")
    if generation.report is not None and not generation.report.exact:
        places = [f"{one.pointer}/{one.keyword}" for one in generation.report.approximated]
        parts.append(f"not wholly in the mask: {', '.join(places)}")
    return "; ".join(parts)


def _by_source(stats: RequestStats) -> str:
    sources = [
        f"{name} {stats.accepted_by_source.get(name, 0)} of {num_tokens}"
        for name, num_tokens in stats.drafted_by_source.items()
    ]
    return f" ({', '.join(sources)})" if len(sources) > 1 else ""
