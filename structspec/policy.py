"""What a request does about the parts of a constraint that a mask cannot hold.

    on_unsupported   not all of it is enforced           finished text is checked for
    "error"          refused before a token is written   all of it
    "validate"       written, then validated             all of it
    "ignore"         written                             being JSON, or the Python type asked for

Output that does not validate is drawn again, up to `max_attempts` times in all; with
`retry_feedback` the model is shown it each time, and told what is wrong with it. Whatever the
policy, `Generation.report` says what was not enforced.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from structspec.added_findings import GrammarWithFindings
from structspec.constraint import Constraint, JsonSchema
from structspec.errors import UnsupportedConstraint
from structspec.grammars.base import CompiledGrammar, Finding, Report
from structspec.request import SamplingParams
from structspec.settings import OnUnsupported
from structspec.text_target import target_of

RETRY_TEMPERATURE = 0.7  # of a request that takes the likeliest token and would repeat itself
MAX_NAMED = 5  # places named in one message


def can_validate(constraint: Constraint | None) -> bool:
    """Whether finished text can be checked against all of a constraint, without its mask."""
    return isinstance(constraint, JsonSchema) or target_of(constraint) is not None


def check_report(report: Report, constraint: Constraint, on_unsupported: OnUnsupported) -> None:
    """Raise UnsupportedConstraint, naming the places, where the policy does not accept the report.

    Where finished text cannot be checked, "validate" could not keep its word and refuses too.
    """
    if report.exact or _accepts_all(constraint, on_unsupported):
        return
    first, *others = report.refused + report.approximated
    why = f" ({first.reason})" if first.reason else ""
    places = ", ".join(_place(one) for one in others[:MAX_NAMED])
    if len(others) > MAX_NAMED:
        places += f" and {len(others) - MAX_NAMED} more"
    too = f", nor is {places}" if places else ""
    then = (
        "on_unsupported='error' refuses that"
        if on_unsupported == "error"
        else "its text cannot be validated either, so only on_unsupported='ignore' would do"
    )
    raise UnsupportedConstraint(
        f"{first.keyword} is not wholly in the mask{why}{too}; {then}",
        pointer=first.pointer or None,
    )


def _place(finding: Finding) -> str:
    return ": ".join(filter(None, (finding.pointer, finding.keyword)))


def unless_unsupported(
    compiled: Future[CompiledGrammar],
    constraint: Constraint,
    on_unsupported: OnUnsupported,
    unheld: Sequence[Finding] = (),
) -> Future[CompiledGrammar]:
    """The same grammar, or UnsupportedConstraint where the policy does not accept its report.

    `unheld`, what the caller's type asks beyond the constraint, becomes part of the report.
    """
    if not unheld and _accepts_all(constraint, on_unsupported):
        return compiled
    checked: Future[CompiledGrammar] = Future()
    checked.set_running_or_notify_cancel()  # from here on nobody can cancel it

    def check(done: Future[CompiledGrammar]) -> None:
        if (error := done.exception()) is not None:
            checked.set_exception(error)
            return
        try:
            grammar = GrammarWithFindings(done.result(), unheld) if unheld else done.result()
            check_report(grammar.report, constraint, on_unsupported)
        except Exception as reason:  # a refusal; or a fault of ours, which must keep nobody waiting
            checked.set_exception(reason)
        else:
            checked.set_result(grammar)

    compiled.add_done_callback(check)
    return checked


def _accepts_all(constraint: Constraint, on_unsupported: OnUnsupported) -> bool:
    return on_unsupported == "ignore" or (on_unsupported == "validate" and can_validate(constraint))


def resample(params: SamplingParams) -> SamplingParams:
    """The parameters of the attempt after one with `params`: other output, reproducibly so.

    Sampled output is drawn again from the same distribution, with a seed that follows from the
    last one where there was one. Greedy output would come out the same: it is drawn at
    `RETRY_TEMPERATURE` instead, from a fixed seed unless the request has one.
    """
    if params.temperature == 0 or params.top_k == 1:
        return replace(
            params, temperature=RETRY_TEMPERATURE, top_k=0, seed=_seed_after(params.seed or 0)
        )
    return params if params.seed is None else replace(params, seed=_seed_after(params.seed))


def sibling(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters of one of several outputs of a prompt; those of the first are as given.

    With a seed each has one of its own, which follows from it.
    """
    if index == 0 or params.seed is None:
        return params
    return replace(params, seed=random.Random(f"{params.seed} {index}").getrandbits(63))


def _seed_after(seed: int) -> int:
    """Far from `seed` and its neighbours, which a caller may use for other requests."""
    return random.Random(seed).getrandbits(63)
