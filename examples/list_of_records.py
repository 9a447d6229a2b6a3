"""Fill in lists of records from several texts at once, and see what speculation brought."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from structspec import LLM


@dataclass
class Product:
    name: str
    price: float
    in_stock: bool


TEXTS = (
    "The lamp costs 20 dollars and is in stock. The chair costs 45 dollars and is sold out.",
    "We still have the blue mug for 8 dollars; the teapot for 30 dollars is gone.",
)


def main(llm: LLM) -> None:
    prompts = [f"List the products in this text: {text}" for text in TEXTS]
    schema = Annotated[list[Product], Field(max_length=4)]
    for result in llm.generate_raw(prompts, schema=schema, temperature=0.0):
        for product in result.value:
            print(product)
        steps, tokens = result.stats.num_target_steps, result.usage.completion_tokens
        print(f"{tokens} tokens in {steps} steps of the model")


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
