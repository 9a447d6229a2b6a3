"""Values that are still being written, as LlamaIndex streams them.

`{"name": "Ada Lo` of a Person is FlexiblePerson(name='Ada Lo', age=None): every field may be
missing or of any type, and objects within are dicts. Texts are seen to grow; numbers appear once
they have come to their end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.program.utils import FlexibleModel, create_flexible_model
from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic_core import from_json

_OF_NUMBERS = "+-.eE0123456789"


class FlexibleValues:
    """Reads the JSON of one object piece by piece and gives what there is of it, once it grows.

    A value costs reading the JSON from its beginning.
    """

    def __init__(self, output_cls: type[BaseModel]) -> None:
        self._flexible = _flexible(output_cls)
        self._field_of = _field_names(output_cls)
        self._text = ""
        self._last: Any = None

    def take(self, response: ChatResponse) -> Iterator[BaseModel]:
        """The object that more of a response makes, if it makes another one; of its end, the value.

        That is the one that was asked for, and not flexible.
        """
        if response.raw is not None:
            yield response.raw["value"]
        elif response.delta:
            yield from self.feed(response.delta)

    def feed(self, text: str) -> Iterator[FlexibleModel]:
        """The object that a new piece of text makes, if it makes another one."""
        self._text += text
        value = partial_value(self._text)
        if value is None or value == self._last:
            return
        self._last = value
        fields = value if isinstance(value, dict) else {"root": value}
        yield self._flexible(**{self._field_of.get(key, key): one for key, one in fields.items()})


def partial_value(text: str) -> Any:
    """What the beginning of a JSON text says; None where that is nothing yet."""
    try:
        value = from_json(text, allow_partial="trailing-strings")
        is_in_text = from_json(text, allow_partial=True) != value
        if is_in_text or text[-1] not in _OF_NUMBERS:
            return value
        return from_json(text.rstrip(_OF_NUMBERS), allow_partial="trailing-strings")
    except ValueError:
        return None


@lru_cache(maxsize=256)  # a class is made for it, which is slow and never freed by pydantic
def _flexible(output_cls: type[BaseModel]) -> type[FlexibleModel]:
    return create_flexible_model(output_cls)


def _field_names(output_cls: type[BaseModel]) -> dict[str, str]:
    """The fields that properties of the JSON are, where they are called otherwise."""
    names: dict[str, str] = {}
    for name, field in output_cls.model_fields.items():
        alias = field.validation_alias or field.alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        for choice in choices:
            if isinstance(choice, str):
                names[choice] = name
            elif isinstance(choice, AliasPath) and len(choice.path) == 1:
                names[str(choice.path[0])] = name
    return names
