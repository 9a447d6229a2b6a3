"""How drafts are made: for a whole engine, and what one request may ask of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from structspec.checks import check_integers, check_numbers
from structspec.errors import InvalidRequest
from structspec.verification import RejectionSampleMethod, check_verification

Method = Literal[
    "hybrid", "forced", "prediction", "suffix", "ngram", "ngram_gpu", "custom_class", "none"
]
DRAFTER_NAMES = ("forced", "prediction", "suffix", "ngram")  # the surest first
METHODS: tuple[Method, ...] = get_args(Method)
BatchSizeRange = tuple[int, int, int]  # its first and last number of requests, and the drafts

_DEFAULT_NUM_TOKENS = 15  # with the bonus row 16 rows, as cheap on a CPU as one
_NOT_YET = ("draft_model", "eagle", "eagle3", "medusa", "mtp", "dflash", "dspark")
_DOTTED_PATH = re.compile(r"([^\W\d]\w*\.)+[^\W\d]\w*")
# by the beginning of its name: the methods that a setting means something to, inferred from it
_METHODS_OF: dict[str, tuple[Method, ...]] = {
    "model": ("custom_class",),
    "prompt_lookup_": ("ngram", "ngram_gpu", "hybrid", "custom_class"),
    "suffix_decoding_": ("suffix", "hybrid", "custom_class"),
    "max_guess_rows": ("hybrid", "custom_class"),
}


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """How an engine drafts; a name that vLLM has means what it means there.

    Without a `method` the settings that are not at their defaults say which: a `model` is the
    dotted path of a drafter's class, `suffix_decoding_*` are of "suffix" and `prompt_lookup_*` of
    "ngram", 0 tokens are "none", and all else is "hybrid", which uses both.
    `num_speculative_tokens` limits one request's drafts in one step.
    """

    method: Method | None = None
    model: str | None = None  # "package.module.Class", called with (vocabulary, config)
    num_speculative_tokens: int = _DEFAULT_NUM_TOKENS
    # (first, last, tokens) by how many requests draft at once, from 1 on; None: what pays
    num_speculative_tokens_per_batch_size: Sequence[BatchSizeRange] | None = None
    max_guess_rows: int | None = None  # rows of a step with guesses; None: as many as pay
    prompt_lookup_min: int = 1
    prompt_lookup_max: int = 5
    suffix_decoding_max_tree_depth: int = 24  # tokens of a match and what follows it
    suffix_decoding_max_cached_requests: int = 10_000  # finished ones that are remembered
    suffix_decoding_max_cached_bytes: int = 2**26  # of them, touched only as they come
    suffix_decoding_max_spec_factor: float = 1.0  # drafts per token of a match
    suffix_decoding_min_token_prob: float = 0.1  # that all drafts up to a token hold
    rejection_sample_method: RejectionSampleMethod = "standard"  # or "block", which is as exact
    synthetic_acceptance_rate: float | None = None  # of each draft behind accepted ones
    synthetic_acceptance_rates: Sequence[float] | None = None  # of the first 1, 2, … drafts at once
    synthetic_acceptance_length: float | None = None  # tokens of a step, the model's own included
    fly_window_size: int | None = None  # right drafts behind a wrong one; None: at most 6
    fly_entropy_threshold: float = 0.3  # nats; below it the model is sure of its token
    fly_entropy_top_k: int = 3  # of so many most likely tokens

    def __post_init__(self) -> None:
        check_integers(self, 0, "num_speculative_tokens")
        if self.max_guess_rows is not None:
            check_integers(self, 0, "max_guess_rows")
        check_integers(self, 1, "prompt_lookup_min", "prompt_lookup_max")
        check_integers(self, 2, "suffix_decoding_max_tree_depth")
        check_integers(self, 0, "suffix_decoding_max_cached_requests")
        check_integers(self, 2**20, "suffix_decoding_max_cached_bytes")
        check_numbers(self, 0, 1_000, "suffix_decoding_max_spec_factor")
        check_numbers(self, 0, 1, "suffix_decoding_min_token_prob")
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise InvalidRequest("prompt_lookup_min must not be above prompt_lookup_max")
        if 0 < self.suffix_decoding_max_cached_requests < 4:
            raise InvalidRequest("suffix_decoding_max_cached_requests must be 0 or at least 4")
        self._check_method()
        self._check_clashes()
        self._read_table()
        check_verification(self)
        if isinstance(self.synthetic_acceptance_rates, list):  # as JSON has it
            object.__setattr__(
                self, "synthetic_acceptance_rates", tuple(self.synthetic_acceptance_rates)
            )
        if self.method == "none":
            object.__setattr__(self, "num_speculative_tokens", 0)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> SpeculativeConfig:
        """Of settings by name, as JSON has them; raises InvalidRequest for unknown ones."""
        if not isinstance(settings, Mapping):
            raise InvalidRequest(f"speculative settings must be an object, not {settings!r}")
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise InvalidRequest(
                    f"unknown speculative setting {name!r}; known are {', '.join(known)}"
                )
        return cls(**settings)

    @property
    def guess_rows(self) -> int:
        """Drafts that may well be wrong are made only while a step has no more rows than this."""
        return sys.maxsize if self.max_guess_rows is None else self.max_guess_rows

    @property
    def resolved_method(self) -> Method:
        """The method, inferred where it was not given."""
        if self.method is not None:
            return self.method
        if self.num_speculative_tokens == 0:
            return "none"
        meant = {methods[0] for _, methods in self._given()}
        if "custom_class" in meant:
            return "custom_class"
        return meant.pop() if len(meant) == 1 else "hybrid"

    @property
    def drafters(self) -> tuple[str, ...]:
        """What a request may choose among."""
        method = self.resolved_method
        if method == "hybrid":
            return DRAFTER_NAMES
        return () if method == "none" else (method,)

    def _given(self) -> list[tuple[str, tuple[Method, ...]]]:
        """The settings away from their defaults that only some methods look at, and which do."""
        return [
            (field.name, methods)
            for field in fields(self)
            for beginning, methods in _METHODS_OF.items()
            if field.name.startswith(beginning) and getattr(self, field.name) != field.default
        ]

    def _read_table(self) -> None:
        """Check num_speculative_tokens_per_batch_size, and make tuples of JSON's lists."""
        name = "num_speculative_tokens_per_batch_size"
        table = self.num_speculative_tokens_per_batch_size
        if table is None:
            return
        clashes = {"method": "none", "num_speculative_tokens": 0}
        for other, value in clashes.items():
            if getattr(self, other) == value:
                raise InvalidRequest(f"{name} contradicts {other}={value!r}")
        if self.max_guess_rows is not None:
            raise InvalidRequest(f"{name} contradicts max_guess_rows; pass one of them")
        check_batch_sizes(name, table, self.num_speculative_tokens)
        object.__setattr__(self, name, tuple(map(tuple, table)))

    def _check_method(self) -> None:
        if self.method in _NOT_YET:
            raise InvalidRequest(
                f"method {self.method!r} is not there yet; there are {', '.join(METHODS)}"
            )
        if self.method is not None and self.method not in METHODS:
            raise InvalidRequest(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if self.model is not None and not _is_dotted_path(self.model):
            raise InvalidRequest(
                f"model must be the dotted path of a drafter's class, not {self.model!r}; models"
                " that draft are not there yet"
            )
        if self.method == "custom_class" and self.model is None:
            raise InvalidRequest("method 'custom_class' needs model, the dotted path of its class")

    def _check_clashes(self) -> None:
        method, num_tokens = self.method, self.num_speculative_tokens
        if method is None:
            return
        allowed = (0, _DEFAULT_NUM_TOKENS) if method == "none" else range(1, sys.maxsize)
        if num_tokens not in allowed:
            raise InvalidRequest(
                f"method {method!r} contradicts num_speculative_tokens={num_tokens}"
            )
        for name, methods in self._given():
            if method not in methods:
                raise InvalidRequest(
                    f"method {method!r} contradicts {name}, which is of {' and '.join(methods)}"
                )


def check_batch_sizes(name: str, table: object, most: int) -> None:
    """Raise InvalidRequest unless these are (first, last, tokens), from 1 on and without gaps."""
    if not isinstance(table, Sequence) or isinstance(table, str) or not table:
        raise InvalidRequest(f"{name} must be a list of (first, last, tokens), not {table!r}")
    expected = 1
    for index, line in enumerate(table):
        place = f"{name}[{index}]"
        is_line = isinstance(line, Sequence) and not isinstance(line, str) and len(line) == 3
        if not is_line or not all(type(number) is int for number in line):
            raise InvalidRequest(
                f"{place} must be three integers: first, last, tokens; not {line!r}"
            )
        first, last, num_tokens = line
        if first != expected or last < first:
            raise InvalidRequest(
                f"{place} must begin at {expected} and end no earlier, not {first} to {last}"
            )
        if not 0 <= num_tokens <= most:
            raise InvalidRequest(
                f"{place} must have 0 to num_speculative_tokens={most} tokens, not {num_tokens}"
            )
        expected = last + 1


def _is_dotted_path(model: object) -> bool:
    return isinstance(model, str) and _DOTTED_PATH.fullmatch(model) is not None
