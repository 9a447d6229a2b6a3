"""The keyword arguments of every generating call, and what they come down to."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, get_args

from structspec.constraint import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    JsonStyle,
    PropertyOrder,
    Regex,
    StructuralTag,
    Tools,
    find_half_character,
)
from structspec.errors import InvalidRequest
from structspec.grammars.base import Finding
from structspec.prompting import SchemaInPrompt
from structspec.reasoning import Reasoning, resolve_reasoning
from structspec.request import LogprobsMode, SamplingParams
from structspec.schema import SchemaTarget, resolve_schema
from structspec.settings import DEFAULT_MAX_ATTEMPTS, BackendName, OnUnsupported
from structspec.speculation import Speculation, to_speculation
from structspec.text_target import target_of


class OtherOptions(TypedDict, total=False):
    """All that GenerateOptions has beside `schema`."""

    regex: str
    choices: Sequence[str]
    grammar: str | Grammar | StructuralTag | Tools
    backend: BackendName
    on_unsupported: OnUnsupported
    max_attempts: int
    retry_feedback: bool
    style: JsonStyle
    property_order: PropertyOrder
    closed: bool
    schema_in_prompt: SchemaInPrompt
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    logit_bias: Mapping[int | str, float]
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logprobs: int
    logprobs_mode: LogprobsMode
    prompt_logprobs: int
    token_details: int
    seed: int
    max_tokens: int
    stop: str | Sequence[str]
    ignore_eos: bool
    allowed_token_ids: Sequence[int]
    bad_words: str | Sequence[str]
    min_tokens: int
    stop_token_ids: Sequence[int]
    speculative: bool | Speculation | Mapping[str, Any]
    prediction: str | Sequence[int]
    reasoning: bool | Reasoning | Mapping[str, Any]
    max_reasoning_tokens: int


class GenerateOptions(OtherOptions, total=False):
    """What may be passed to `generate`, `generate_raw` and `stream` beside the prompt.

    At most one of `schema`, `regex`, `choices` and `grammar` constrains the output; structural tags
    and tool sets are grammars too. `style`, `property_order`, `closed` and `schema_in_prompt` go
    with `schema`; `backend`, `on_unsupported`, `max_attempts` and `retry_feedback` with any of the
    four (structspec.policy says what the last three do). The sampling fields are those of
    SamplingParams; what is not given comes from the model's generation config. `speculative` turns
    drafts off, or says which (Speculation's fields, as a dict too); `prediction` is what the output
    will likely be, as text or tokens: where it is right it is drafted, where it is wrong it changes
    nothing. `reasoning` has the model reason before its answer or not (Reasoning's fields, as a
    dict too); at most `max_reasoning_tokens` long.
    """

    schema: Any


SAMPLING_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("temperature", "top_p", "min_p"), (int, float)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (int, float)),
    "repetition_penalty": (int, float),
    "logit_bias": (Mapping,),
    **dict.fromkeys(("top_k", "seed", "max_tokens", "min_tokens"), (int,)),
    **dict.fromkeys(("logprobs", "prompt_logprobs", "token_details"), (int,)),
    "logprobs_mode": (str,),
    "ignore_eos": (bool,),
    "speculative": (bool, Speculation, Mapping),
    **dict.fromkeys(("stop", "bad_words"), (str, list, tuple)),
    **dict.fromkeys(("allowed_token_ids", "stop_token_ids"), (list, tuple)),
}
RAW_ONLY = ("on_result", "return_errors")
CONSTRAINT_FIELDS = ("schema", "regex", "choices", "grammar")
CHOICES_OF = {
    "backend": get_args(BackendName),
    "on_unsupported": get_args(OnUnsupported),
    "style": get_args(JsonStyle),
    "property_order": get_args(PropertyOrder),
    "schema_in_prompt": get_args(SchemaInPrompt),
    "logprobs_mode": get_args(LogprobsMode),
}
# options that mean nothing without a constraint, and why
OF_CONSTRAINTS = {
    "backend": "chooses who compiles a constraint",
    "on_unsupported": "is about what a mask cannot hold of a constraint",
    "max_attempts": "is about output that does not meet its constraint",
    "retry_feedback": "is about output that does not meet its constraint",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One call's options, resolved: what the output must be and how it is drawn."""

    constraint: Constraint | None
    target: SchemaTarget | None  # turns the text into the caller's value, where there is one
    backend: BackendName
    on_unsupported: OnUnsupported
    max_attempts: int
    schema_in_prompt: SchemaInPrompt
    sampling: Mapping[str, Any]  # fields of SamplingParams that were given
    prediction: str | tuple[int, ...] = ()
    reasoning: Reasoning | None = None
    retry_feedback: bool = False
    answer: SchemaTarget | None = None  # what reads an answer that is written instead of calls

    @property
    def unheld(self) -> tuple[Finding, ...]:
        """What the Python type asks beyond the constraint."""
        if self.target is None:
            return ()
        is_open = isinstance(self.constraint, JsonSchema) and not self.constraint.closed
        return self.target.unheld + (self.target.unheld_open if is_open else ())


def resolve_options(options: GenerateOptions) -> Task:
    """Check options against each other; raises InvalidRequest or GrammarError, compiles nothing."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    _refuse_unknown(given)
    _refuse_contradictions(given)
    target = _resolve_target(given)
    constraint = _resolve_constraint(given, target)
    return Task(
        constraint=constraint,
        target=target or target_of(constraint),
        backend=given.get("backend", "auto"),
        on_unsupported=given.get("on_unsupported", "validate"),
        max_attempts=_resolve_max_attempts(given),
        schema_in_prompt=given.get("schema_in_prompt", "auto"),
        sampling=_resolve_sampling(given),
        prediction=_resolve_prediction(given.get("prediction", ())),
        reasoning=_resolve_reasoning(given),
        retry_feedback="retry_feedback" in given and _of_type(given, "retry_feedback", (bool,)),
    )


def check_n(n: object) -> None:
    """Raise InvalidRequest unless this is a number of outputs, or None."""
    if n is not None and (type(n) is not int or n < 1):
        raise InvalidRequest(f"n must be a number of at least 1, not {n!r}")


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = sorted(GenerateOptions.__optional_keys__)
    for name in given:
        if name == "n":
            raise InvalidRequest("n= goes with generate and generate_raw, which return a list then")
        if name in RAW_ONLY:
            raise InvalidRequest(f"{name}= goes with generate_raw, which returns Generations")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise InvalidRequest(f"unknown option {name!r}; {hint}")
    for name, allowed in CHOICES_OF.items():
        if name in given and given[name] not in allowed:
            raise InvalidRequest(f"{name} must be one of {', '.join(allowed)}, not {given[name]!r}")


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    constraints = [name for name in CONSTRAINT_FIELDS if name in given]
    if len(constraints) > 1:
        raise InvalidRequest(
            f"{' and '.join(f'{name}=' for name in constraints)} contradict each other; pass one"
        )
    for name in ("style", "property_order", "closed", "schema_in_prompt"):
        if name in given and "schema" not in given:
            raise InvalidRequest(f"{name}= goes with schema=, which was not given")
    for name, role in OF_CONSTRAINTS.items():
        if name in given and not constraints:
            raise InvalidRequest(
                f"{name}= {role}, and none was given; pass schema=, regex=, choices= or grammar="
            )
    if constraints and given.get("ignore_eos"):
        raise InvalidRequest(
            f"ignore_eos= contradicts {constraints[0]}=: a constraint decides where its text ends"
        )


def _resolve_target(given: Mapping[str, Any]) -> SchemaTarget | None:
    if "schema" not in given:
        return None
    schema = given["schema"]
    return resolve_schema(schema.schema if isinstance(schema, JsonSchema) else schema)


def _resolve_constraint(given: Mapping[str, Any], target: SchemaTarget | None) -> Constraint | None:
    if target is not None:
        if "closed" in given:
            _of_type(given, "closed", (bool,))
        schema = given["schema"]
        default = schema if isinstance(schema, JsonSchema) else JsonSchema(True)
        constraint = JsonSchema(
            target.json_schema,
            style=given.get("style", default.style),
            property_order=given.get("property_order", default.property_order),
            closed=given.get("closed", default.closed),
        )
        if target.schema_text is not None:
            constraint.remember(target.schema_text)
        return constraint
    if "regex" in given:
        return Regex(_of_type(given, "regex", (str,)))
    if "choices" in given:
        return _resolve_choices(given["choices"])
    if "grammar" in given:
        if isinstance(given["grammar"], Mapping):
            raise InvalidRequest(
                "grammar= takes text; for a structural tag pass StructuralTag({...}), for a JSON"
                " schema schema="
            )
        if isinstance(given["grammar"], JsonSchema):
            raise InvalidRequest("grammar= takes no JsonSchema; pass its schema as schema=")
        grammar = _of_type(given, "grammar", (str, Grammar, StructuralTag, Tools))
        return Grammar(grammar) if isinstance(grammar, str) else grammar
    return None


def _resolve_choices(choices: Any) -> Choice:
    if isinstance(choices, str) or not isinstance(choices, Sequence | set | frozenset):
        raise InvalidRequest(f"choices must be a list of strings, not {choices!r}")
    if not choices:
        raise InvalidRequest("choices is empty: there must be at least one to choose")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise InvalidRequest(
                f"choices[{index}] must be a string, not {choice!r}; for other values pass"
                " schema=Literal[...] or an Enum"
            )
    return Choice(tuple(choices))


def _resolve_max_attempts(given: Mapping[str, Any]) -> int:
    if "max_attempts" not in given:
        return DEFAULT_MAX_ATTEMPTS
    max_attempts: int = _of_type(given, "max_attempts", (int,))
    if max_attempts < 1:
        raise InvalidRequest(f"max_attempts must be at least 1, not {max_attempts}")
    return max_attempts


def _resolve_sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {name: given[name] for name in SAMPLING_KINDS if name in given}
    for name in sampling:
        _of_type(sampling, name, SAMPLING_KINDS[name])
    for name, kind, what in (
        ("stop", str, "strings"),
        ("bad_words", str, "strings"),
        ("allowed_token_ids", int, "token ids"),
        ("stop_token_ids", int, "token ids"),
    ):
        if name in sampling:
            sampling[name] = _resolve_list(name, sampling[name], kind, what)
    if "logit_bias" in sampling:
        sampling["logit_bias"] = _resolve_logit_bias(sampling["logit_bias"])
    if "logprobs_mode" in sampling and "logprobs" not in sampling:
        raise InvalidRequest("logprobs_mode= goes with logprobs=, which was not given")
    if "speculative" in sampling:
        speculation = to_speculation(sampling["speculative"])
        sampling |= {"speculative": speculation.is_on, "speculation": speculation}
    SamplingParams(**sampling)  # refuses what is out of range
    return sampling


def _resolve_list(name: str, given: Any, kind: type, what: str) -> tuple[Any, ...]:
    """One value of the kind, or all of several."""
    values = (given,) if isinstance(given, kind) else tuple(given)
    for value in values:
        if type(value) is not kind:
            raise InvalidRequest(f"{name} must hold {what}, not {value!r}")
    return values


def _resolve_logit_bias(given: Mapping[Any, Any]) -> tuple[tuple[int, float], ...]:
    biases: dict[int, float] = {}
    for key, bias in given.items():
        is_digits = isinstance(key, str) and key.isascii() and key.isdigit()
        if not is_digits and type(key) is not int:
            raise InvalidRequest(f"logit_bias: {key!r} is no token id, as a number or its digits")
        if int(key) in biases:
            raise InvalidRequest(f"logit_bias names the token {int(key)} twice")
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise InvalidRequest(f"logit_bias[{key!r}] must be a number, not {bias!r}")
        biases[int(key)] = float(bias)
    return tuple(biases.items())


def _resolve_prediction(prediction: Any) -> str | tuple[int, ...]:
    if isinstance(prediction, str):
        if find_half_character(prediction) is not None:
            raise InvalidRequest("prediction must be made of whole characters")
        return prediction
    is_list = isinstance(prediction, Sequence) and not isinstance(prediction, bytes)
    if not is_list or not all(type(token_id) is int and token_id >= 0 for token_id in prediction):
        raise InvalidRequest(f"prediction must be a string or a list of token ids: {prediction!r}")
    return tuple(prediction)


def _resolve_reasoning(given: Mapping[str, Any]) -> Reasoning | None:
    wish, limit = None, None
    if "reasoning" in given:
        wish = _of_type(given, "reasoning", (bool, Reasoning, Mapping))
    if "max_reasoning_tokens" in given:
        limit = _of_type(given, "max_reasoning_tokens", (int,))
    return resolve_reasoning(wish, limit)


def _of_type(given: Mapping[str, Any], name: str, kinds: tuple[type, ...]) -> Any:
    value = given[name]
    is_wanted = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if not is_wanted:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidRequest(f"{name} must be {names}, not {value!r}")
    return value
