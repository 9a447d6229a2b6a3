"""pydantic-ai: a provider for `structspec serve`, whose profile says what the server can do.

    model = OpenAIChatModel("smollm2-135m", provider=StructSpecProvider())
    Agent(model, output_type=Person)  # native output: held by the grammar, one request

`pip install 'structspec-sdk[pydantic-ai]'`; docs/agents.md has recipes.
"""

from __future__ import annotations

import os
from typing import Any

try:
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
except ImportError as error:
    raise ImportError(
        f"{error}; to use structspec with pydantic-ai: pip install 'structspec-sdk[pydantic-ai]'"
    ) from error

from structspec.client.settings import api_url

DEFAULT_BASE_URL = "http://127.0.0.1:8000/v1"


class StructSpecProvider(OpenAICompatibleProvider):
    """Where a structspec server listens, for OpenAIChatModel and OpenAIResponsesModel.

    `base_url`, to which /v1 is added where it has no path, comes from STRUCTSPEC_BASE_URL where it
    is not given, else it is what `structspec serve` takes by itself; `api_key` from
    STRUCTSPEC_API_KEY. A client of one's own (`openai_client=` or `http_client=`) is passed on;
    with the former there is nothing else to say.
    """

    def __init__(
        self, base_url: str | None = None, *, api_key: str | None = None, **clients: Any
    ) -> None:
        if clients.get("openai_client") is None:
            base_url = base_url or os.environ.get("STRUCTSPEC_BASE_URL") or DEFAULT_BASE_URL
            base_url = api_url(base_url)
            api_key = api_key or os.environ.get("STRUCTSPEC_API_KEY")
        super().__init__(
            "structspec", base_url=base_url, api_key=api_key, profile=profile_of, **clients
        )


def profile_of(model_name: str) -> OpenAIModelProfile:
    """What any model behind a structspec server can do; it hangs on the server, not the model."""
    return OpenAIModelProfile(
        supports_tools=True,
        supports_json_schema_output=True,
        supports_json_object_output=True,
        default_structured_output_mode="native",
        native_output_requires_schema_in_instructions=False,  # the server shows it to the model
        json_schema_transformer=None,  # it holds schemas as pydantic makes them, bounds and all
        openai_supports_strict_tool_definition=True,
        supports_forced_tool_choice=True,
        openai_chat_supports_allowed_tools=True,
        openai_chat_supports_multiple_system_messages=False,  # some templates take one
        openai_chat_thinking_field="reasoning_content",
        openai_chat_send_back_thinking_parts="field",
        openai_chat_streaming_requires_finish_reason=True,  # without it an answer was cut off
        supports_image_input=False,
        supports_document_input=False,
        supports_audio_file_input=False,
        supports_video_input=False,
        openai_chat_supports_document_input=False,
        supported_native_tools=frozenset(),
    )
