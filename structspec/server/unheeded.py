"""Fields of other servers that are not read here though they would change an answer: refused.

What says the same as leaving a field out is let pass, as clients send it without being asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structspec.chat.fields import refuse

_EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # of OpenAI
    "modalities": (["text"],),
    **dict.fromkeys(("moderation", "audio", "web_search_options", "prompt"), ()),
    # of vLLM
    "best_of": (1,),
    "length_penalty": (1,),
    "add_generation_prompt": (True,),
    "skip_special_tokens": (True,),
    **dict.fromkeys(("use_beam_search", "logits_processors", "truncate_prompt_tokens"), ()),
    **dict.fromkeys(("repetition_detection", "documents", "chat_template"), ()),
    **dict.fromkeys(("continue_final_message", "include_stop_str_in_output"), ()),
    **dict.fromkeys(("prompt_logprobs", "logprob_token_ids", "return_token_ids"), ()),
    **dict.fromkeys(("return_tokens_as_token_ids", "return_prompt_text", "echo"), ()),
    # of SGLang
    **dict.fromkeys(("custom_logit_processor", "structural_tag", "lora_path", "stop_regex"), ()),
    **dict.fromkeys(("no_stop_trim", "ctrl_grammar"), ()),
    # of llama.cpp
    "typical_p": (1,),
    "repeat_penalty": (1,),
    "n_predict": (-1,),
    **dict.fromkeys(("mirostat", "lora", "grammar_lazy", "samplers", "dynatemp_range"), ()),
    **dict.fromkeys(("dry_multiplier", "xtc_probability", "top_n_sigma"), (-1,)),
}
_INSTEAD = {
    "repeat_penalty": "repetition_penalty",
    "n_predict": "max_tokens",
    "structural_tag": "response_format",
}


def check_unheeded(given: Mapping[str, Any]) -> None:
    """Raise InvalidField for the first field that is not read though it asks for something else."""
    for name, value in given.items():
        if value is None:
            continue
        if name == "extra_body":
            raise refuse(
                "extra_body is an argument of client libraries: put its fields into the body",
                name,
            )
        is_known = name in _NEUTRAL or name.startswith("guided_")
        if is_known and not _is_neutral(name, value):
            instead = f"; send {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise refuse(f"{name} is not supported{instead}", name, "unsupported_parameter")


def _is_neutral(name: str, value: Any) -> bool:
    neutral = _NEUTRAL.get(name, ())
    if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral):
        return True
    says_no = name not in ("prompt_logprobs", "add_generation_prompt", "skip_special_tokens")
    return says_no and value in _EMPTY
