"""Grammars for vLLM: its structured-output backend over structspec's router.

    structured_outputs ─ constraint_of ─→ GrammarCompiler ─→ StructSpecGrammar, one per request

Against the interfaces of vLLM 0.26 to 0.33; see docs/vllm.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputOptions,
)

from structspec.compiler import GrammarCompiler
from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    JsonStyle,
    PropertyOrder,
    Regex,
    StructuralTag,
)
from structspec.errors import InvalidRequest
from structspec.grammars.base import CompiledGrammar, DeadEnd, Matcher, MatcherFailed
from structspec.grammars.drafts import fill_stop_row
from structspec.limits import Limiter
from structspec.request import SamplingParams
from structspec.settings import BackendName
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_PREFIX = "structspec_"


@dataclass(frozen=True, slots=True)
class GrammarOptions:
    """What vLLM has no field for: how JSON is written, and which backend holds it.

    Of an engine they are `additional_config={"structspec": {"style": "compact"}}`, of a request
    `extra_args={"structspec_style": "compact"}` (`vllm_xargs` over HTTP).
    """

    backend: BackendName = "auto"
    style: JsonStyle = "spaced"
    property_order: PropertyOrder = "schema"
    closed: bool = True

    def updated(self, given: Mapping[str, Any]) -> GrammarOptions:
        """With those that are given; raises InvalidRequest for one that there is not."""
        known = {field.name for field in fields(self)}
        for name in given:
            if name not in known:
                raise InvalidRequest(
                    f"structspec has no option {name!r}; there are {', '.join(sorted(known))}"
                )
        return replace(self, **given)

    def of_request(self, extra_args: Mapping[str, Any] | None) -> GrammarOptions:
        """With a request's own, the names of which begin with `structspec_`."""
        given = {
            name.removeprefix(_PREFIX): value
            for name, value in (extra_args or {}).items()
            if name.startswith(_PREFIX)
        }
        if "closed" in given:  # over HTTP there is no boolean
            given["closed"] = given["closed"] not in (False, 0, "false", "0")
        return self.updated(given)


def has_options(extra_args: Mapping[str, Any] | None) -> bool:
    """Whether a request says anything to structspec."""
    return any(name.startswith(_PREFIX) for name in extra_args or ())


def constraint_of(kind: StructuredOutputOptions, text: str, options: GrammarOptions) -> Constraint:
    """What a field of `structured_outputs` asks for; `text` as vLLM hands it over."""
    match kind.name:
        case "JSON":
            return _schema(text, options)
        case "JSON_OBJECT":
            return _schema({"type": "object"}, replace(options, closed=False))
        case "REGEX":
            return Regex(text)
        case "CHOICE":
            return Choice(tuple(json.loads(text)))
        case "GRAMMAR":
            return Grammar(text)
        case "STRUCTURAL_TAG":
            return StructuralTag(text, style=options.style, closed=options.closed)
    raise InvalidRequest(f"structspec knows no structured output of the kind {kind.name}")


def _schema(schema: Mapping[str, Any] | str, options: GrammarOptions) -> JsonSchema:
    return JsonSchema(
        schema,
        style=options.style,
        property_order=options.property_order,
        closed=options.closed,
    )


class StructSpecGrammar(StructuredOutputGrammar):  # type: ignore[misc, unused-ignore]
    """One request's position in its grammar, as vLLM moves and asks it.

    `report` says what is enforced. A grammar that fails, with `error`, allows the end alone; one
    that fails behind a draft does so until the draft is taken back.
    """

    def __init__(
        self,
        compiled: CompiledGrammar,
        vocabulary: Vocabulary,
        matcher: Matcher,
        stop_token_ids: Collection[int],
    ) -> None:
        self.report = compiled.report
        self.matcher = matcher
        self.error: MatcherFailed | None = None
        self._failed_at = 0  # behind so many tokens
        self._vocabulary = vocabulary
        self._stop_token_ids = frozenset(stop_token_ids)
        self._accepted: list[int] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by all of them, or not at all."""
        num_taken = self._take(tokens)
        if num_taken == len(tokens):
            return True
        self.rollback(num_taken)
        return False

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest beginning that the grammar takes; the position stays where it is."""
        num_taken = self._take(tokens)
        self.rollback(num_taken)
        return tokens[:num_taken]

    def rollback(self, num_tokens: int) -> None:
        """Undo the last accepted tokens."""
        if not num_tokens:
            return
        self.matcher.rollback(num_tokens)
        del self._accepted[-num_tokens:]
        if len(self._accepted) < self._failed_at:  # if it is of no more use, it fails here too
            self.error = None

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write the allowed next tokens; where the grammar has failed, the end alone."""
        rows = bitmask.numpy()
        try:
            self.matcher.fill(rows, batch_index)
            return
        except DeadEnd:  # the row holds stop tokens
            return
        except MatcherFailed as error:
            logger.exception("a grammar failed; its request ends if it comes here")
            self._note(error)
        fill_stop_row(rows, batch_index, self._vocabulary.stop_token_ids)

    def is_terminated(self) -> bool:
        """Whether a stop token was accepted."""
        return bool(self._accepted) and self._accepted[-1] in self._stop_token_ids

    def reset(self) -> None:
        """Back to the beginning."""
        self.rollback(len(self._accepted))

    def _note(self, error: MatcherFailed) -> None:
        self.error, self._failed_at = error, len(self._accepted)

    def _take(self, tokens: Sequence[int]) -> int:
        """Accept up to the first that is refused; says how many."""
        for index, token_id in enumerate(tokens):
            try:
                if self.error is not None or not self.matcher.accept(token_id):
                    return index
            except MatcherFailed as error:
                self._note(error)
                return index
            self._accepted.append(token_id)
        return len(tokens)


class StructSpecBackend(StructuredOutputBackend):  # type: ignore[misc, unused-ignore]
    """Compiles with structspec's router; thread-safe, as vLLM asks from several threads."""

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
        self.vllm_config = vllm_config
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.options = _options_of(vllm_config)
        self.vocabulary = vocabulary_of(vllm_config, tokenizer, vocab_size)
        self._compiler = GrammarCompiler(self.vocabulary)
        self._compiler.warm_up()
        self._limiter = Limiter(self.vocabulary)

    def compile_grammar(
        self,
        request_type: StructuredOutputOptions,
        grammar_spec: str,
        stop_token_ids: set[int] | None = None,
    ) -> StructSpecGrammar:
        """A new position; raises GrammarError, a ValueError, which fails this request alone."""
        return self.compile_with(self.options, request_type, grammar_spec, stop_token_ids)

    def compile_with(
        self,
        options: GrammarOptions,
        kind: StructuredOutputOptions,
        text: str,
        stop_token_ids: Collection[int] | None = None,
    ) -> StructSpecGrammar:
        """As `compile_grammar`, with a request's own options."""
        constraint = constraint_of(kind, text, options)
        compiled = self._compiler.submit(constraint, options.backend).result()
        own = self.vocabulary.stop_token_ids
        more = tuple(sorted(set(stop_token_ids or ()) - set(own)))
        params = SamplingParams(stop_token_ids=more)
        matcher = compiled.matcher()
        for wrapper in self._limiter.limit(params, is_constrained=True):
            matcher = wrapper.around(matcher)
        return StructSpecGrammar(compiled, self.vocabulary, matcher, {*own, *more})

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """[max_num_seqs, ceil(vocab_size / 32)], everything allowed."""
        return torch.full((max_num_seqs, -(-self.vocab_size // 32)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """End the compiler's threads and processes."""
        self._compiler.close()


def _options_of(vllm_config: Any) -> GrammarOptions:
    """An engine's: vLLM's own switch for white space, and what is said to structspec."""
    is_compact = vllm_config.structured_outputs_config.disable_any_whitespace
    options = GrammarOptions(style="compact" if is_compact else "spaced")
    given = vllm_config.additional_config
    return options.updated(given.get("structspec", {}) if isinstance(given, Mapping) else {})


def vocabulary_of(vllm_config: Any, tokenizer: Any, vocab_size: int) -> Vocabulary:
    """The model's; tokenizers of mistral_common are read from their file."""
    if not hasattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "to_str"):
        tokenizer = vllm_config.model_config.tokenizer
    return Vocabulary.from_tokenizer(tokenizer, vocab_size=vocab_size)
