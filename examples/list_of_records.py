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
    "Lamp, 20 dollars, in stock. Chair, 45 dollars, sold out.",
    "Blue mug, 8 dollars, in stock. Teapot, 30 dollars, sold out.",
)


def main(llm: LLM) -> None:
    prompts = [f"List the products in this text: {text}" for text in TEXTS]
    # The bound also keeps a small model from listing the same product again and again.
    schema = Annotated[list[Product], Field(max_length=4)]
    for result in llm.generate_raw(prompts, schema=schema):
        for product in result.value:
            print(product)
        steps, tokens = result.stats.num_target_steps, result.usage.completion_tokens
        print(f"{tokens} tokens in {steps} steps of the model")


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
