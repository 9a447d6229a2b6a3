"""How model families write calls of tools: the texts around a call's name and its arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnvelopeText:
    """The fixed texts of one family's calls.

    opening (before_name NAME before_arguments ARGUMENTS after_arguments) separator (…) … closing

    Free text before the calls does not contain `trigger`. `markers` are parts of these texts that
    are special tokens in the family's vocabularies; `needs_tokens`: no plain text stands for them.
    Without a separator there is one call only. `arguments_key`, where a whole call is one JSON
    object: the key of its arguments, beside "name".
    """

    before_name: str
    before_arguments: str
    after_arguments: str
    trigger: str
    separator: str | None = None
    opening: str = ""
    closing: str = ""
    markers: tuple[str, ...] = ()
    needs_tokens: bool = False
    before_answer: str = ""
    arguments_key: str | None = None

    @property
    def is_json_name(self) -> bool:
        """Whether the name stands in a JSON string."""
        return self.before_arguments.startswith('"')


ENVELOPES: dict[str, EnvelopeText] = {
    "hermes": EnvelopeText(
        before_name='<tool_call>\n{"name": "',
        before_arguments='", "arguments": ',
        after_arguments="}\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
        markers=("<tool_call>", "</tool_call>"),
    ),
    "llama3": EnvelopeText(
        before_name='{"name": "',
        before_arguments='", "parameters": ',
        after_arguments="}",
        separator="; ",
        trigger='{"name": ',
        arguments_key="parameters",
    ),
    "mistral": EnvelopeText(
        opening="[TOOL_CALLS][",
        before_name='{"name": "',
        before_arguments='", "arguments": ',
        after_arguments="}",
        separator=", ",
        closing="]",
        trigger="[TOOL_CALLS]",
        markers=("[TOOL_CALLS]",),
    ),
    "deepseek": EnvelopeText(
        opening="<｜tool▁calls▁begin｜>",
        before_name="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        before_arguments="\n```json\n",
        after_arguments="\n```<｜tool▁call▁end｜>",
        separator="\n",
        closing="<｜tool▁calls▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
        markers=(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        ),
    ),
    "harmony": EnvelopeText(  # a call ends the message: its end token is a stop token
        before_name="<|channel|>commentary to=functions.",
        before_arguments=" <|constrain|>json<|message|>",
        after_arguments="",
        trigger="<|channel|>",
        markers=("<|channel|>", "<|constrain|>", "<|message|>"),
        needs_tokens=True,
        before_answer="<|channel|>final<|message|>",
    ),
    "json": EnvelopeText(
        before_name='{"name": "',
        before_arguments='", "arguments": ',
        after_arguments="}",
        separator="\n",
        trigger='{"name": ',
        arguments_key="arguments",
    ),
}
