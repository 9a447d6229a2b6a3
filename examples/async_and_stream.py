"""Many requests at once with AsyncLLM, and text as it becomes certain."""

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from structspec import AsyncLLM


class City(BaseModel):
    name: str
    country: str


ThreeWords = Annotated[list[str], Field(min_length=3, max_length=3)]


async def main(llm: AsyncLLM) -> None:
    capital, answer = await asyncio.gather(
        llm.generate("Which city is in the text? Paris is the capital of France.", schema=City),
        llm.generate("Is the moon made of cheese?", choices=["yes", "no"]),
    )
    print(repr(capital), answer)
    async for piece in llm.stream("Name three fruits.", schema=ThreeWords):
        print(piece, end="", flush=True)
    print()


async def run() -> None:
    async with AsyncLLM("smollm2-135m") as llm:
        await main(llm)


if __name__ == "__main__":
    asyncio.run(run())
