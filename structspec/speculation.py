"""What one request may ask about its drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from structspec.checks import check_integers
from structspec.errors import InvalidRequest
from structspec.speculative_config import DRAFTER_NAMES, SpeculativeConfig

_KNOWN = (*DRAFTER_NAMES, "ngram_gpu", "custom_class")


@dataclass(frozen=True, slots=True)
class Speculation:
    """One request's wishes; None leaves it to the engine.

    At most `num_speculative_tokens` are drafted in a step, 0 is off. `drafters` are tried in this
    order at every place: a hybrid engine has "forced", "prediction", "suffix" and "ngram", others
    the one that their method names.
    """

    num_speculative_tokens: int | None = None
    drafters: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_speculative_tokens is not None:
            check_integers(self, 0, "num_speculative_tokens")
        if self.drafters is not None:
            object.__setattr__(self, "drafters", _to_names(self.drafters))

    @property
    def is_on(self) -> bool:
        """Whether anything may be drafted."""
        return self.num_speculative_tokens != 0

    @property
    def chain(self) -> tuple[str, ...]:
        """The kinds of drafts to try, in this order, by an engine that has them all."""
        return DRAFTER_NAMES if self.drafters is None else self.drafters

    def check(self, config: SpeculativeConfig) -> None:
        """Raise InvalidRequest where an engine of this configuration has no such drafter."""
        for name in self.drafters or ():
            if name not in config.drafters:
                there = ", ".join(config.drafters) or "none"
                raise InvalidRequest(
                    f"speculative: this engine has no drafter {name!r}; its method"
                    f" {config.resolved_method!r} has {there}"
                )


def to_speculation(wish: bool | Speculation | Mapping[str, Any]) -> Speculation:
    """Of True, False or the fields by name, `method` in place of one drafter among them."""
    if isinstance(wish, Speculation):
        return wish
    if isinstance(wish, bool):
        return Speculation() if wish else Speculation(num_speculative_tokens=0)
    given = dict(wish)
    if "method" in given and "drafters" in given:
        raise InvalidRequest("speculative: method and drafters contradict each other; pass one")
    if "method" in given:
        method = given.pop("method")
        if method == "none":
            return _off(given)
        given["drafters"] = None if method == "hybrid" else (method,)
    known = [field.name for field in fields(Speculation)]
    for name in given:
        if name not in known:
            raise InvalidRequest(
                f"speculative: unknown field {name!r}; known are {', '.join(known)} and method"
            )
    return Speculation(**given)


def _off(given: Mapping[str, Any]) -> Speculation:
    if given.get("num_speculative_tokens"):
        raise InvalidRequest(
            "speculative: method 'none' contradicts num_speculative_tokens="
            f"{given['num_speculative_tokens']}"
        )
    return Speculation(num_speculative_tokens=0)


def _to_names(drafters: Any) -> tuple[str, ...]:
    is_list = isinstance(drafters, Sequence) and not isinstance(drafters, str)
    if not is_list or not drafters or not all(name in _KNOWN for name in drafters):
        raise InvalidRequest(f"drafters must be a list of {', '.join(_KNOWN)}, not {drafters!r}")
    for name in drafters:
        if drafters.count(name) > 1:
            raise InvalidRequest(f"drafters: {name!r} stands there {drafters.count(name)} times")
    return tuple(drafters)
