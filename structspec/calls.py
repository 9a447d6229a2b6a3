"""The calls of LLM and Client: prompts in, validated values out, whoever runs them."""

# A str is a Sequence[str] too: where both overloads fit, the first, for one prompt, is meant.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from structspec.batch_rows import DEFAULT_MAX_IN_FLIGHT, Batch, values_of
from structspec.call_run import CallRun, prepare_rows
from structspec.choosing import Chosen
from structspec.generation import Generation
from structspec.options import GenerateOptions, OtherOptions, check_n
from structspec.prompts import Prompt, Prompts, split_prompts
from structspec.results import OnResult, Result, all_or_raise, arranged
from structspec.streams import Streams
from structspec.tool_conversation import DEFAULT_MAX_ROUNDS, ToolConversation, ToolRun

T = TypeVar("T")


class Calls(Streams):
    """Everything that may be asked of a model, blocking; thread-safe."""

    @overload
    def generate(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> T: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[list[T]]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, schema: None = None, n: int, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        schema: None = None,
        n: int,
        **options: Unpack[OtherOptions],
    ) -> list[list[str]]: ...
    @overload
    def generate(
        self, prompt: Prompts, *, schema: Any, n: int | None = None, **options: Unpack[OtherOptions]
    ) -> Any: ...
    def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any:
        """The value for a prompt (a string or chat messages); for a list of prompts, a list.

        With `n=` as many outputs of each prompt, in a list: of one prompt, a list of values. With a
        seed each is drawn from one of its own, the first from the seed itself.

        With `schema=` it is validated and of that type, otherwise it is the text. What does not
        validate is drawn again, `max_attempts` times in all, before it is an OutputInvalid. Of a
        list the first error is raised once all have finished; `generate_raw` can return errors
        instead.
        """
        check_n(n)
        task = self._service.resolve(options)
        prompts, is_batch = split_prompts(prompt)
        # All are checked before any is started: a bad one costs the others nothing.
        results = all_or_raise(self._run(self._service.prepare_all(prompts, task, n)))
        return arranged([one.value for one in results], n, is_batch=is_batch)

    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Generation: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> Result: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...
    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Result]]: ...
    def generate_raw(
        self,
        prompt: Prompts,
        *,
        n: int | None = None,
        on_result: OnResult | None = None,
        return_errors: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """The Generation for a prompt; for a list of prompts, a list of them.

        `n` is that of `generate`. `on_result(index, generation_or_error)` is called on this thread
        as each one finishes; with `n` the outputs of a prompt are counted one by one. With
        `return_errors` an error takes its prompt's place in the list instead of being raised.
        """
        check_n(n)
        task = self._service.resolve(options)
        prompts, is_batch = split_prompts(prompt)
        if return_errors:
            rows = prepare_rows(self._service, prompts, task, n)
            return arranged(self._run(rows, on_result), n, is_batch=is_batch)
        results = self._run(self._service.prepare_all(prompts, task, n), on_result)
        return arranged(all_or_raise(results), n, is_batch=is_batch)

    def choose(self, prompt: Prompt, choices: Sequence[str]) -> Chosen:
        """Which of these answers the model finds likeliest, and how likely each one is.

        All are scored in one pass over the prompt; `Chosen` says what the probabilities are of.
        `generate(choices=...)` draws one instead, token by token.
        """
        scoring = self._service.prepare_choices(prompt, choices)
        return scoring.compare(all_or_raise(self._run(scoring.prepared)))

    @overload
    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        schema: type[T],
        return_errors: Literal[False] = False,
        on_result: OnResult | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: bool | None = None,
        **options: Unpack[OtherOptions],
    ) -> list[T]: ...
    @overload
    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        schema: Any = None,
        return_errors: bool = False,
        on_result: OnResult | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: bool | None = None,
        **options: Unpack[OtherOptions],
    ) -> list[Any]: ...
    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        return_errors: bool = False,
        on_result: OnResult | None = None,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: bool | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Any]:
        """The values of very many prompts, in their order; at most `max_in_flight` run at once.

        `prompts` may be a generator: each is taken when there is room for it. The first error ends
        the batch; with `return_errors` it takes its prompt's place instead. `on_result(index,
        generation_or_error)` is called on this thread as each one finishes: what it stores need
        not be generated again. A progress bar is shown on a terminal, or as `progress` says.
        """
        batch = Batch(prompts, on_result, max_in_flight, progress)
        rows = prepare_rows(self._service, batch.prompts, self._service.resolve(options))
        with batch.shown() as told:
            results = self._run(rows, told, max_in_flight=max_in_flight, raises=not return_errors)
        return values_of(results)

    def run_tools(
        self,
        prompt: Prompt,
        tools: Sequence[Callable[..., Any]],
        *,
        tool_choice: str = "auto",
        parallel: bool = True,
        max_rounds: int = DEFAULT_MAX_ROUNDS,
        **options: Unpack[GenerateOptions],
    ) -> ToolRun:
        """The answer to a prompt by a model that may call these Python functions on the way.

        Their signatures and docstrings say what the model may call, see `to_tools`; arguments are
        always valid, and typed when they arrive. What a call raises is told to the model as its
        result. `tool_choice` "required" or a tool's name has the first output be a call; without
        `parallel` an output makes one call at most; after `max_rounds` rounds of calls there has to
        be an answer: text, or of `schema=` a validated value. Coroutine functions run in an event
        loop of their own.
        """
        template = self._service.chat_template
        conversation = ToolConversation(
            prompt, tools, template, options, max_rounds, tool_choice, parallel
        )
        while not conversation.is_over:
            [result] = self._run([self._service.prepare_turn(conversation)])
            for call in conversation.take(result):
                conversation.answer(call, call.tool.run(call.arguments))
        return conversation.result

    def _run(
        self,
        prepared: Iterable[Any],
        on_result: OnResult | None = None,
        *,
        max_in_flight: int | None = None,
        raises: bool = False,
    ) -> list[Result]:
        finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        with CallRun(
            self._service,
            prepared,
            finished.put,
            on_result=on_result,
            max_in_flight=max_in_flight,
            raises=raises,
        ) as run:
            while run.is_running:
                run.take(finished.get())
        return run.results
