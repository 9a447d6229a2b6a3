"""The fields that say how tokens are drawn, as options of `generate`."""

from __future__ import annotations

from typing import Any

from structspec.server.bodies import SamplingFields

_PASSED_ON = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "max_tokens", "ignore_eos"),
    *("logit_bias", "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens"),
    *("stop_token_ids", "bad_words", "allowed_token_ids", "logprobs_mode", "speculative"),
)
_WITHOUT_EFFECT: dict[str, Any] = {  # what clients send to say that a field is not used
    "top_k": (0, -1),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "stop": ([],),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "min_p": (0,),
}


def read_sampling(body: SamplingFields) -> dict[str, Any]:
    """The options that are given; what is wrong with their values is for `generate` to say."""
    options: dict[str, Any] = {}
    for name in _PASSED_ON:
        value = getattr(body, name)
        if value is None or value in _WITHOUT_EFFECT.get(name, ()):
            continue
        options[name] = value
    return options
