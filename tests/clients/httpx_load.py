"""Load as `vllm bench serve` makes it, without any SDK: python httpx_load.py URL [MODEL].

Streams of chat completions over plain HTTP, arriving at random times, some with a schema: every
event of each is read as vLLM's benchmark reads them, and every object validated.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass

import httpx2
from pydantic import BaseModel, Field

MODEL = "smollm2-135m"
NUM_REQUESTS, RATE_PER_SECOND = 16, 4.0


class Person(BaseModel):
    name: str = Field(max_length=20)
    born: int = Field(ge=1000, le=2100)


@dataclass(frozen=True, slots=True)
class Answer:
    """One stream, read to its end."""

    text: str
    num_tokens: int
    first_piece_s: float
    seconds: float


async def ask(client: httpx2.AsyncClient, model: str, index: int) -> Answer:
    """Send one request and read its events."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Person {index} was born in {1800 + index}."}],
        "temperature": 0,
        "max_tokens": 24 if index % 2 else 200,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if index % 2 == 0:
        form = {"name": "person", "schema": Person.model_json_schema(), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    start, first, text, num_tokens = time.perf_counter(), 0.0, "", 0
    async with client.stream("POST", "chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        is_done = False
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                assert not line or line.startswith(":"), line
                continue
            data = line.removeprefix("data: ")
            is_done = data == "[DONE]"
            if is_done:
                break
            event = json.loads(data)
            for choice in event["choices"]:
                piece = choice["delta"].get("content") or ""
                first = first or (time.perf_counter() - start if piece else 0.0)
                text += piece
            if event["usage"] is not None:
                num_tokens = event["usage"]["completion_tokens"]
        assert is_done and num_tokens > 0
    if index % 2 == 0:
        Person.model_validate_json(text)
    return Answer(text, num_tokens, first, time.perf_counter() - start)


async def run(url: str, model: str = MODEL) -> None:
    draw = random.Random(0)
    async with httpx2.AsyncClient(base_url=url, timeout=300) as client:
        tasks = []
        for index in range(NUM_REQUESTS):
            tasks.append(asyncio.create_task(ask(client, model, index)))
            await asyncio.sleep(draw.expovariate(RATE_PER_SECOND))
        answers = await asyncio.gather(*tasks)
    first = statistics.median(answer.first_piece_s for answer in answers)
    num_tokens = sum(answer.num_tokens for answer in answers)
    print(f"ok   {len(answers)} streams, {num_tokens} tokens, first piece {first:.2f} s (median)")


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
