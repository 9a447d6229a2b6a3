"""The ways to ask for the same object that are compared; the first is the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from structspec.bench.quality_tasks import ExtractionTask
from structspec.errors import InvalidRequest
from structspec.prompting import describe_schema

Instruction = Literal["schema", "none"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Options of `generate` that differ from the defaults, and what the prompt says of the schema.

    "schema" is the sentence that `schema_in_prompt="auto"` writes.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    instruction: Instruction = "schema"
    is_free: bool = False  # no constraint: told the same, read leniently afterwards

    def prompt(self, task: ExtractionTask) -> str:
        """All that the user says."""
        if self.instruction == "none":
            return task.prompt
        return f"{describe_schema(task.schema)}\n{task.prompt}"

    def arguments(self, task: ExtractionTask) -> dict[str, Any]:
        """The keyword arguments of `generate_raw` that say what the output must be."""
        if self.is_free:
            return {}
        # the prompt says it already, or is not to say it
        return {"schema": task.schema, "schema_in_prompt": "never", **self.options}


CONFIGURATIONS = (
    Configuration("default"),
    Configuration("compact", {"style": "compact"}),
    Configuration("pretty", {"style": "pretty"}),
    Configuration("flexible", {"style": "flexible"}),
    Configuration("free text", is_free=True),
    Configuration("open", {"closed": False}),
    Configuration("any order", {"property_order": "any"}),
    Configuration("no schema in prompt", instruction="none"),
)
DEFAULT = CONFIGURATIONS[0]


def choose_configurations(names: list[str] | None) -> tuple[Configuration, ...]:
    """The default and those named; all without names. Raises InvalidRequest for unknown ones."""
    known = [configuration.name for configuration in CONFIGURATIONS]
    for name in names or ():
        if name not in known:
            raise InvalidRequest(f"there is no configuration {name!r}; known are {known}")
    return tuple(one for one in CONFIGURATIONS if not names or one is DEFAULT or one.name in names)
