"""One surface: what LLM can be asked, Client can, in the same words; both awaited too."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import pytest

from structspec import LLM, AsyncClient, AsyncLLM, Client

# what one of them lacks, and why
EXCEPTIONS = {
    "metrics": "are those of an engine; a server has them at /metrics",
}
PAIRS = [(LLM, Client), (AsyncLLM, AsyncClient)]


def calls_of(kind: type) -> dict[str, Any]:
    """Its public methods by name."""
    public = [name for name in dir(kind) if not name.startswith("_")]
    return {name: getattr(kind, name) for name in public if name not in EXCEPTIONS}


def overloads_of(call: Any) -> list[inspect.Signature]:
    return [inspect.signature(one) for one in typing.get_overloads(call)]


@pytest.mark.parametrize(("here", "elsewhere"), PAIRS)
def test_a_client_can_be_asked_all_that_an_engine_can(here: type, elsewhere: type) -> None:
    assert list(calls_of(here)) == list(calls_of(elsewhere))
    for name in EXCEPTIONS:
        assert hasattr(here, name) and not hasattr(elsewhere, name)


@pytest.mark.parametrize(("here", "elsewhere"), PAIRS)
def test_their_calls_take_and_give_the_same(here: type, elsewhere: type) -> None:
    for name, call in calls_of(here).items():
        other = calls_of(elsewhere)[name]
        assert inspect.signature(call) == inspect.signature(other)
        assert overloads_of(call) == overloads_of(other)


@pytest.mark.parametrize(("blocking", "awaited"), [*zip(*PAIRS, strict=True)])
def test_blocking_and_awaited_calls_take_the_same(blocking: type, awaited: type) -> None:
    assert list(calls_of(blocking)) == list(calls_of(awaited))
    for name, call in calls_of(blocking).items():
        other = calls_of(awaited)[name]
        assert (
            call.__code__.co_varnames[: call.__code__.co_argcount]
            == (other.__code__.co_varnames[: other.__code__.co_argcount])
        )
        mine, theirs = inspect.signature(call), inspect.signature(other)
        assert mine.parameters == theirs.parameters
        assert len(overloads_of(call)) == len(overloads_of(other))


def test_constructors_differ_in_where_the_model_is_and_nothing_else() -> None:
    def names(kind: type) -> set[str]:
        return set(inspect.signature(kind).parameters)

    assert names(LLM) == names(AsyncLLM) and names(Client) == names(AsyncClient)
    assert names(LLM) & names(Client) == {"model", "hooks"}
