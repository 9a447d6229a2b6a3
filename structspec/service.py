"""What stands behind LLM and AsyncLLM: a loaded model and its engine, fed checked prompts."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from structspec.choosing import SCORING, check_choices, choose_among
from structspec.compiler import GrammarCompiler
from structspec.config import EngineConfig
from structspec.ending import Endings
from structspec.engine.build import build_engine
from structspec.engine.engine import Engine
from structspec.engine.late_wrapping import put_late
from structspec.engine.loop import EngineLoop, Listener, News
from structspec.errors import InvalidRequest, OutputInvalid, PromptTooLong
from structspec.generation import Generation, to_generation
from structspec.grammars.base import CompiledGrammar
from structspec.hooks import Hook, HookName, Hooks
from structspec.json_closing import close_in_time
from structspec.limits import Limiter
from structspec.metrics import Metrics
from structspec.models import load_model
from structspec.models.loading import DType, choose_device, choose_dtype
from structspec.options import GenerateOptions, Task, resolve_options
from structspec.policy import resample, sibling, unless_unsupported
from structspec.prompting import Message, feedback_on, show_schema
from structspec.prompts import Messages, Prompt, to_messages
from structspec.reasoning_plan import Reasoner
from structspec.request import NO_USAGE, Request, SamplingParams, Usage
from structspec.runner import Scoring
from structspec.token_sequence import TokenSequence
from structspec.tool_conversation import ToolConversation


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages, and what else a chat template is given."""

    messages: Messages
    tools: Sequence[Mapping[str, Any]] | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt as tokens, which no template goes around."""

    token_ids: Sequence[int]


DEFAULT_MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked request that has not started, and what its result must be."""

    request: Request
    task: Task
    attempt: int = 1
    spent: Usage = NO_USAGE  # by the attempts before this one
    prompt: Prompt | ChatPrompt | TokenPrompt | None = None
    feedback: tuple[Message, ...] = ()  # on the attempts before, where they are told of it


class Service:
    """Loads a model and serves requests on the engine's own thread; thread-safe."""

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: DType = "auto",
        device: str = "auto",
        config: EngineConfig | None = None,
        hooks: Mapping[HookName, Hook] | None = None,
    ) -> None:
        self.model_name = str(model)
        self._hooks = Hooks(hooks)
        self._request_ids = itertools.count()
        target = choose_device(device)
        config = config or EngineConfig()
        self._speculative = config.speculative
        self._engine_loop = EngineLoop(
            lambda: self._build_engine(model, choose_dtype(dtype, target), target, config),
            log_interval_s=config.log_stats_interval_s,
            max_pieces_per_second=config.max_pieces_per_second,
        )

    def _build_engine(
        self, model: str | Path, dtype: torch.dtype, device: torch.device, config: EngineConfig
    ) -> Engine:
        """Load the model and put the engine's parts together; fills in the public attributes."""
        loaded = load_model(
            model,
            dtype=dtype,
            device=device,
            max_model_len=config.max_model_len,
            load_format=config.load_format,
            batch_invariant=config.batch_invariant,
        )
        self.tokenizer = loaded.tokenizer
        self.vocabulary = loaded.tokenizer.vocabulary
        self._limiter = Limiter(self.vocabulary)
        self._endings = Endings(self.vocabulary, self._speculative.num_speculative_tokens)
        self._reasoner = Reasoner(self.vocabulary, self.tokenizer.chat_template)
        self.defaults = loaded.generation
        self.compiler = GrammarCompiler(
            self.vocabulary,
            num_threads=config.num_compile_threads,
            timeout_s=config.compile_timeout_s,
            cache_dir=config.compile_cache_dir,
            max_cache_dir_bytes=config.max_compile_cache_dir_bytes,
        )
        self.compiler.warm_up()  # beside what follows
        try:
            built = build_engine(
                loaded, config.resolved(device.type), self.compiler.counts.snapshot
            )
        except BaseException:
            self.compiler.close()
            raise
        self.max_model_len = built.max_model_len
        self._recorder = built.engine.scheduler.recorder
        return built.engine

    def prepare(self, prompt: Prompt | ChatPrompt | TokenPrompt, task: Task) -> Prepared:
        """Start compiling, tokenise and check lengths; the request itself does not start yet."""
        compiled: Future[CompiledGrammar] | None = None
        if task.constraint is not None:  # first: it is compiled beside all that follows
            compiled = self.compiler.submit(task.constraint, task.backend)
            compiled = unless_unsupported(
                compiled, task.constraint, task.on_unsupported, task.unheld
            )
        request = self._request(self._encode(prompt, task), task, compiled)
        return Prepared(request, task, prompt=prompt)

    @property
    def chat_template(self) -> str | None:
        """The model's own, in Jinja."""
        return self.tokenizer.chat_template

    def resolve(self, options: GenerateOptions) -> Task:
        """Check a call's options; raises InvalidRequest and GrammarError."""
        return resolve_options(options)

    def prepare_turn(self, conversation: ToolConversation) -> Prepared:
        """A request for what comes next in a conversation with tools."""
        return self.prepare(ChatPrompt(*conversation.prompt), conversation.task)

    def prepare_choices(
        self, prompt: Prompt | ChatPrompt | TokenPrompt, choices: Sequence[str]
    ) -> Scoring:
        """A request for each choice that can write that text only, as encoding it gives its tokens.

        The prompt is tokenised and computed once, and a choice takes few steps: all its tokens are
        known.
        """
        check_choices(choices)
        task = resolve_options(SCORING)
        token_ids = self._encode(prompt, task)
        prepared: list[Prepared] = []
        for choice in choices:
            compiled: Future[CompiledGrammar] = Future()
            compiled.set_result(TokenSequence(self.tokenizer.encode(choice), self.vocabulary))
            request = self._request(token_ids, task, compiled)
            request.leader = prepared[0].request if prepared else None
            prepared.append(Prepared(request, task))
        # the stop token included
        num_tokens = [len(self.tokenizer.encode(choice)) + 1 for choice in choices]
        return Scoring(prepared, partial(choose_among, choices, num_tokens=num_tokens))

    def _request(
        self,
        token_ids: Sequence[int],
        task: Task,
        compiled: Future[CompiledGrammar] | None,
        params: SamplingParams | None = None,
    ) -> Request:
        num_left = self.max_model_len - len(token_ids)
        if num_left < 1:
            raise PromptTooLong(
                f"the prompt has {len(token_ids)} tokens and the context {self.max_model_len};"
                " shorten it to leave room for at least one token of output"
            )
        params = params or SamplingParams(**{**self._default_sampling(), **task.sampling})
        params.speculation.check(self._speculative)
        self._check_token_ids("allowed_token_ids", params.allowed_token_ids or ())
        self._check_token_ids("stop_token_ids", params.stop_token_ids)
        self._check_token_ids("logit_bias", [token_id for token_id, _ in params.logit_bias])
        max_tokens = min(params.max_tokens or DEFAULT_MAX_TOKENS, num_left)
        is_constrained = compiled is not None
        ending = self._endings.plan(task.constraint, max_tokens)
        reasoning = self._reasoner.plan(
            task.reasoning,
            token_ids,
            max_tokens,
            is_constrained=is_constrained,
            marks_answers=task.target is not None and task.target.reads_markers,
            ending=None if ending is None else ending.search,
        )
        wrappers = reasoning.wrappers
        if not wrappers and reasoning.progress is None:
            wrappers = close_in_time(task.constraint, max_tokens, self.vocabulary)
            ending = None if wrappers else ending
        wrappers = self._limiter.limit(params, wrappers, is_constrained=is_constrained)
        request = Request(next(self._request_ids), token_ids, params, max_tokens, compiled)
        request.wrappers = wrappers
        put_late(request, ending)
        request.reasoning = reasoning.progress
        request.prediction_token_ids = self._encode_prediction(task.prediction)
        return request

    def prepare_all(
        self,
        prompts: Sequence[Prompt | ChatPrompt | TokenPrompt],
        task: Task,
        num_outputs: int | None = None,
    ) -> list[Prepared]:
        """Prepare prompts, each so many times in a row; each is tokenised and computed once."""
        prepared: list[Prepared] = []
        for prompt in prompts:
            first = self.prepare(prompt, task)
            prepared.append(first)
            for index in range(1, num_outputs or 1):
                request = self._again(first.request, sibling(first.request.params, index))
                request.leader = first.request
                prepared.append(Prepared(request, task, prompt=prompt))
        return prepared

    def start(self, prepared: Prepared, listener: Listener, *, is_streamed: bool = False) -> None:
        """Hand a prepared request to the engine; text comes in pieces only if it is streamed."""
        request, attempt = prepared.request, prepared.attempt
        request.is_streamed = is_streamed or self._hooks.wants_text
        if self._hooks.wants_text:
            listener = _telling(listener, self._hooks.teller(request, attempt))
        self._hooks.tell_start(request, attempt)
        self._engine_loop.submit(request, listener)

    def cancel(self, prepared: Prepared) -> None:
        """End a request early; nothing happens if it has finished or was not started."""
        self._engine_loop.cancel(prepared.request)

    def finish(self, prepared: Prepared) -> Generation:
        """The result of a finished request; raises what it failed with."""
        try:
            result = to_generation(
                prepared.request,
                prepared.task,
                self.vocabulary,
                num_attempts=prepared.attempt,
                spent=prepared.spent,
            )
        except Exception as error:
            self._hooks.tell("done", prepared.request, prepared.attempt, result=error)
            raise
        self._hooks.tell("done", prepared.request, prepared.attempt, result=result)
        return result

    def next_attempt(self, prepared: Prepared, result: Generation | Exception) -> Prepared | None:
        """A request for other output than that which did not validate; None where all is said.

        `result` is what `finish` gave or raised. Nothing is compiled again, and nothing tokenised
        unless the task has the attempt told what was wrong.
        """
        if not isinstance(result, OutputInvalid) or prepared.attempt >= prepared.task.max_attempts:
            return None
        assert result.usage is not None
        self._hooks.tell("retry", prepared.request, prepared.attempt, result=result)
        again = replace(prepared, attempt=prepared.attempt + 1, spent=result.usage)
        params = resample(prepared.request.params)
        if prepared.task.retry_feedback:
            told = replace(again, feedback=(*prepared.feedback, *feedback_on(result)))
            with contextlib.suppress(PromptTooLong):  # no room for what is to be told
                return replace(told, request=self._retold(told, params))
        return replace(again, request=self._again(prepared.request, params))

    def _retold(self, prepared: Prepared, params: SamplingParams) -> Request:
        """A request for the same whose prompt goes on with what was wrong before."""
        assert prepared.prompt is not None
        token_ids = self._encode(prepared.prompt, prepared.task, prepared.feedback)
        return self._request(token_ids, prepared.task, prepared.request.compiled, params)

    def _again(self, other: Request, params: SamplingParams) -> Request:
        """A request for the same as another, drawn otherwise."""
        return Request(
            next(self._request_ids),
            other.prompt_token_ids,
            params,
            other.max_tokens,
            other.compiled,
            wrappers=other.wrappers,
            late_wrapper=other.late_wrapper,
            reasoning=other.reasoning and other.reasoning.fresh(),
            prediction_token_ids=other.prediction_token_ids,
        )

    def usage_of(self, prepared: Prepared) -> Usage:
        """What a request and the attempts before it have used so far."""
        return prepared.spent + prepared.request.usage

    def metrics(self) -> Metrics:
        """What the engine has done so far; closed ones still tell."""
        return self._recorder.snapshot()

    @property
    def is_alive(self) -> bool:
        """Whether requests are taken: it was not closed, and the engine has not failed."""
        return self._engine_loop.is_alive

    def close(self) -> None:
        """Cancel what runs and end the threads; calling it again does nothing."""
        self._engine_loop.close()
        self.compiler.close()

    def _default_sampling(self) -> dict[str, Any]:
        names = ("temperature", "top_k", "top_p", "min_p")
        given = {name: getattr(self.defaults, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}

    def _encode(
        self,
        prompt: Prompt | ChatPrompt | TokenPrompt,
        task: Task,
        feedback: Sequence[Message] = (),
    ) -> Sequence[int]:
        if isinstance(prompt, TokenPrompt):  # no messages: there is no way to tell it anything
            self._check_token_ids("the prompt", prompt.token_ids)
            return prompt.token_ids
        chat = prompt if isinstance(prompt, ChatPrompt) else ChatPrompt(to_messages(prompt))
        messages = to_messages(chat.messages)
        if task.target is not None:
            messages = show_schema(messages, task.target, task.schema_in_prompt)
        reasoning = self._reasoner.template_options(task.reasoning)
        return self.tokenizer.encode_chat(
            [*messages, *feedback], chat.tools, {**reasoning, **chat.template_options}
        )

    def _encode_prediction(self, prediction: str | tuple[int, ...]) -> Sequence[int]:
        token_ids: Sequence[int] = (
            self.tokenizer.encode(prediction) if isinstance(prediction, str) else prediction
        )
        if len(token_ids) > self.max_model_len:
            raise InvalidRequest(
                f"prediction has {len(token_ids)} tokens, and no output has more than the"
                f" {self.max_model_len} of the context; leave out what will not be written"
            )
        self._check_token_ids("prediction", token_ids)
        return token_ids

    def _check_token_ids(self, what: str, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            if not 0 <= token_id < self.vocabulary.vocab_size:
                raise InvalidRequest(
                    f"{what} holds the token {token_id}, and the vocabulary ends at"
                    f" {self.vocabulary.vocab_size - 1}"
                )


def _telling(listener: Listener, tell: Callable[[str], None]) -> Listener:
    """A listener that also tells somebody else of each piece of the text."""

    def listen(news: News) -> None:
        if news.text or news.reasoning:
            tell(news.text)
        listener(news)

    return listen
