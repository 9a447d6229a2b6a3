"""Many requests at once with AsyncLLM, and text as it becomes certain."""

import asyncio

from pydantic import BaseModel

from structspec import AsyncLLM


class City(BaseModel):
    name: str
    country: str


async def main(llm: AsyncLLM) -> None:
    capital, answer = await asyncio.gather(
        llm.generate("What is the capital of France?", schema=City, temperature=0.0),
        llm.generate("Is the sea salty?", choices=["yes", "no"], temperature=0.0),
    )
    print(repr(capital), answer)
    prompt = "Name three colors of the rainbow."
    async for piece in llm.stream(prompt, schema=list[str], temperature=0.0, max_tokens=100):
        print(piece, end="", flush=True)
    print()


async def run() -> None:
    async with AsyncLLM("smollm2-135m") as llm:
        await main(llm)


if __name__ == "__main__":
    asyncio.run(run())
