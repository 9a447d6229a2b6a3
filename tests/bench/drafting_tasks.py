"""What drafters are measured on: fixed prompts by kind of work, each with the options it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from structspec import Tools
from tests.bench.bench_generate import EXTRACTION
from tests.lossless_pairs import WORKLOAD
from tests.real_requests import Pair

_NUM_COPIES = 4
_CHAT_TOKENS, _EDIT_TOKENS, _MAX_TOKENS = 96, 192, 384


def _tool(name: str, description: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }


_CITY = {"type": "string", "maxLength": 30}
_TEXT = {"type": "string", "maxLength": 60}
TOOLS = (
    _tool(
        "get_weather",
        "The weather in a city",
        city=_CITY,
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
    _tool(
        "book_table",
        "Reserve a table",
        restaurant=_TEXT,
        num_guests={"type": "integer", "minimum": 1, "maximum": 20},
        time={"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
    ),
    _tool("send_email", "Send an e-mail", recipient=_TEXT, subject=_TEXT),
    _tool(
        "search_flights",
        "Find flights",
        departure_city=_CITY,
        arrival_city=_CITY,
        max_price={"type": "integer", "minimum": 1, "maximum": 5000},
    ),
)
ASKS = (
    "What is the weather in Paris in celsius?",
    "Book a table for 4 guests at Chez Nous at 19:30.",
    "Send an e-mail to Nora Diaz with the subject Weekly planning.",
    "Find flights from Lima to Oslo for at most 900 dollars.",
    "Is it warm in Cairo? Tell me in fahrenheit.",
    "Reserve a table for 2 guests at Aurora at 20:00.",
    "Write to Ben Patel, the subject is Invoice 4711.",
    "I need flights from Berlin to Tokyo below 1200 dollars.",
)

EDITS = (
    (
        "Rename the function area to rectangle_area.",
        "def area(width, height):\n    if width < 0 or height < 0:\n"
        '        raise ValueError("sides must not be negative")\n    return width * height\n\n\n'
        "def total_area(rectangles):\n    total = 0\n    for width, height in rectangles:\n"
        "        total += area(width, height)\n    return total\n",
    ),
    (
        "Replace the variable name items by products.",
        "class Cart:\n    def __init__(self):\n        self.items = []\n\n"
        "    def add(self, name, price):\n        self.items.append((name, price))\n\n"
        "    def total(self):\n        return sum(price for _, price in self.items)\n\n"
        "    def __len__(self):\n        return len(self.items)\n",
    ),
    (
        "Change the default port to 9090.",
        "import argparse\n\n\ndef parse_arguments():\n"
        '    parser = argparse.ArgumentParser(description="Serve a folder over HTTP.")\n'
        '    parser.add_argument("folder", help="what is served")\n'
        '    parser.add_argument("--host", default="127.0.0.1")\n'
        '    parser.add_argument("--port", type=int, default=8080)\n'
        "    return parser.parse_args()\n",
    ),
)


def _extraction() -> list[Pair]:
    return [
        (f"Extract the data from this text: {text}", {"schema": schema})
        for text, schema in EXTRACTION
    ]


def tool_call(ask: str) -> Pair:
    """One call of one of the tools, which the prompt lists."""
    listed = "\n".join(json.dumps(tool) for tool in TOOLS)
    tools = Tools(TOOLS, envelope="hermes", choice="required", parallel=False)
    return f"Tools:\n{listed}\nCall the right one. {ask}", {"grammar": tools}


def _agent_loop() -> list[Pair]:
    """Rounds of one loop: a prompt has all calls and answers before it, and asks for the next."""
    pairs, history = [], ""
    for hour in range(8, 14):
        city = ("Paris", "Oslo")[hour % 2]
        ask = f"{history}It is {hour}:00. Look up the weather in {city} in celsius."
        pairs.append(tool_call(ask))
        call = {"name": "get_weather", "arguments": {"city": city, "unit": "celsius"}}
        history += f"{json.dumps(call)}\n{json.dumps({'temperature': hour, 'sky': 'clear'})}\n"
    return pairs


def _schemas() -> list[Pair]:
    bounded = WORKLOAD["bounded"]
    return [(WORKLOAD["prompts"][name], {"schema": bounded[name]}) for name in bounded]


def _copies() -> list[Pair]:
    return [
        (task["prompt"], {"schema": task["schema"], "schema_in_prompt": "never"})
        for task in WORKLOAD["copy_tasks"][:_NUM_COPIES]
    ]


def _chat() -> list[Pair]:
    asks = (
        "Explain in a few paragraphs how a lighthouse works.",
        "What should I look at when I buy a used bicycle?",
        "Write a short letter that thanks a neighbour for watering the plants.",
        "Compare tea and coffee.",
    )
    return [(ask, {"max_tokens": _CHAT_TOKENS}) for ask in asks]


def _edits() -> list[Pair]:
    return [
        (
            f"{ask} Answer with the whole code and nothing else.\n```python\n{code}```",
            {"prediction": f"```python\n{code}```", "max_tokens": _EDIT_TOKENS},
        )
        for ask, code in EDITS
    ]


def tasks_by_kind() -> dict[str, Sequence[Pair]]:
    """All of them; temperature 0 is not among the options."""
    kinds = {
        "extraction": _extraction(),
        "tool calls": [tool_call(ask) for ask in ASKS],
        "agent loop": _agent_loop(),
        "16 schemas": _schemas(),
        "copy": _copies(),
        "chat": _chat(),
        "code edit": _edits(),
    }
    return {
        kind: [(prompt, {"max_tokens": _MAX_TOKENS, **options}) for prompt, options in pairs]
        for kind, pairs in kinds.items()
    }
