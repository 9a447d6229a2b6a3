"""Turn chat messages into the text a model was trained on, by its own Jinja template."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from structspec.errors import InvalidRequest, ModelError

ROLES = ("system", "developer", "user", "assistant", "tool")

# For models without a template of their own: readable, and easy for a base model to continue.
PLAIN_TEMPLATE = """\
{% for message in messages %}
{{ message['role'] | capitalize }}: {{ message['content'] }}

{% endfor %}
{% if add_generation_prompt %}
Assistant:
{%- endif %}"""


def render_chat(
    template: str | None,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    variables: Mapping[str, Any],
) -> str:
    """The prompt that makes the model speak next; raises InvalidRequest for what it cannot show.

    `variables` are what the template finds beside these: the names of special tokens, options.
    """
    _check_messages(messages)
    source = template or PLAIN_TEMPLATE
    if tools and "tools" not in source:
        raise InvalidRequest(
            "this model's chat template has no place for tools: describe them in a message"
        )
    try:
        return _compile(source).render(
            **{
                "add_generation_prompt": True,
                **variables,
                "messages": messages,
                "tools": list(tools) if tools else None,
            }
        )
    except (jinja2.TemplateError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise InvalidRequest(f"the chat template refuses these messages: {error}") from error


def _check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    if not messages:
        raise InvalidRequest("there are no messages: give at least one")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise InvalidRequest(
                f"messages[{index}] must be a mapping with a role out of {', '.join(ROLES)}"
            )


@functools.lru_cache(maxsize=8)
def _compile(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    # What templates on the hub expect to find.
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ModelError(
            f"the model's chat template is broken, line {error.lineno}: {error}"
        ) from None


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
