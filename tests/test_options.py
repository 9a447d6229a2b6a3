import pytest
from pydantic import BaseModel

from structspec import Choice, Grammar, InvalidRequest, JsonSchema, Regex
from structspec.options import resolve_options


class Person(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schema": Person, "regex": "a"}, "schema= and regex= contradict each other"),
        ({"choices": ["a"], "grammar": "start: /a/"}, "choices= and grammar= contradict"),
        ({"style": "compact"}, "style= goes with schema="),
        ({"closed": False, "regex": "a"}, "closed= goes with schema="),
        ({"backend": "xgrammar"}, "none was given"),
        ({"schema": Person, "ignore_eos": True}, "ignore_eos= contradicts schema="),
        ({"schmea": Person}, "did you mean 'schema'"),
        ({"wholly_unknown": 1}, "known are"),
        ({"on_result": print}, "on_result= goes with generate_raw"),
        ({"schema": Person, "backend": "regexes"}, "backend must be one of"),
        ({"on_unsupported": "ignore"}, "on_unsupported= is about .* none was given"),
        ({"max_attempts": 2}, "max_attempts= is about .* none was given"),
        ({"regex": "a", "property_order": "any"}, "property_order= goes with schema="),
        ({"schema": Person, "on_unsupported": "drop"}, "on_unsupported must be one of error, val"),
        ({"schema": Person, "property_order": "az"}, "property_order must be one of schema, any"),
        ({"schema": Person, "max_attempts": 0}, "max_attempts must be at least 1, not 0"),
        ({"schema": Person, "max_attempts": True}, "max_attempts must be int"),
        ({"schema": Person, "style": "loose"}, "style must be one of"),
        ({"choices": []}, "choices is empty"),
        ({"choices": "abc"}, "a list of strings"),
        ({"choices": ["a", 1]}, r"choices\[1\] must be a string, not 1"),
        ({"regex": 3}, "regex must be str"),
        ({"grammar": 3}, "grammar must be str or Grammar"),
        ({"temperature": "hot"}, "temperature must be int or float"),
        ({"max_tokens": True}, "max_tokens must be int"),
        ({"max_tokens": 1.5}, "max_tokens must be int"),
        ({"stop": [1]}, "stop must hold strings, not 1"),
        ({"stop": ["a", "\ud800"]}, "stop must be made of whole characters"),
        ({"schema": Person, "closed": "yes"}, "closed must be bool"),
        ({"stop": 1}, "stop must be str or list or tuple"),
        ({"bad_words": ["a", 2]}, "bad_words must hold strings, not 2"),
        ({"allowed_token_ids": [1, "2"]}, "allowed_token_ids must hold token ids, not '2'"),
        ({"stop_token_ids": [True]}, "stop_token_ids must hold token ids, not True"),
        ({"allowed_token_ids": []}, "allowed_token_ids must be at least one token id"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens must be at most max_tokens, which is 3"),
        ({"speculative": "no"}, "speculative must be bool"),
        ({"logit_bias": [1]}, "logit_bias must be Mapping"),
        ({"logit_bias": {"a": 1}}, "logit_bias: 'a' is no token id"),
        ({"logit_bias": {1.0: 1}}, "logit_bias: 1.0 is no token id"),
        ({"logit_bias": {"7": 1, 7: 2}}, "logit_bias names the token 7 twice"),
        ({"logit_bias": {7: "1"}}, r"logit_bias\[7\] must be a number, not '1'"),
        ({"logit_bias": {7: 101}}, "numbers between -100 and 100, not 101.0 to 7"),
        ({"logit_bias": {-7: 1}}, "logit_bias must give token ids"),
        ({"logit_bias": {7: float("nan")}}, "numbers between -100 and 100, not nan"),
        ({"presence_penalty": 2.5}, r"presence_penalty must be in \[-2, 2\], not 2.5"),
        ({"frequency_penalty": -3}, r"frequency_penalty must be in \[-2, 2\], not -3"),
        ({"repetition_penalty": 0}, r"repetition_penalty must be in \[0.01, 100\]"),
        ({"repetition_penalty": 1e30}, r"repetition_penalty must be in \[0.01, 100\]"),
        ({"logprobs": True}, "logprobs must be int"),
        ({"logprobs": 21}, "logprobs must be between 0 and 20, not 21"),
        ({"prompt_logprobs": -1}, "prompt_logprobs must be between 0 and 20, not -1"),
        ({"token_details": 21}, "token_details must be between 0 and 20, not 21"),
        ({"token_details": True}, "token_details must be int"),
        ({"logprobs": 1, "logprobs_mode": "pre"}, "logprobs_mode must be one of raw, processed"),
        ({"logprobs_mode": "raw"}, "logprobs_mode= goes with logprobs="),
    ],
)
def test_contradictory_or_mistyped_options_say_what_to_do(options, says):
    with pytest.raises(InvalidRequest, match=says):
        resolve_options(options)


@pytest.mark.parametrize(
    ("options", "constraint"),
    [
        ({"regex": "a+"}, Regex("a+")),
        ({"choices": ["a", "b"]}, Choice(("a", "b"))),
        ({"grammar": "start: /a/"}, Grammar("start: /a/")),
        ({"grammar": Grammar("root ::= a", "ebnf")}, Grammar("root ::= a", "ebnf")),
        ({}, None),
        ({"schema": None, "stop": None}, None),
    ],
)
def test_each_constraint_option_becomes_its_constraint(options, constraint):
    assert resolve_options(options).constraint == constraint


def test_a_json_schema_value_brings_its_own_settings():
    given = JsonSchema({"type": "object"}, style="compact", property_order="any", closed=False)
    constraint = resolve_options({"schema": given}).constraint
    assert isinstance(constraint, JsonSchema)
    assert (constraint.style, constraint.property_order) == ("compact", "any")
    assert not constraint.closed
    overridden = resolve_options({"schema": given, "style": "spaced"}).constraint
    assert isinstance(overridden, JsonSchema) and overridden.style == "spaced"


def test_a_single_stop_string_is_a_list_of_one():
    assert resolve_options({"stop": "END"}).sampling == {"stop": ("END",)}
    assert resolve_options({"bad_words": "no"}).sampling == {"bad_words": ("no",)}
