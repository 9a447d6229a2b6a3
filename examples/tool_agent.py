"""An agent that calls Python functions until it can answer, in an answer of a type."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from structspec import LLM

STOCK = {"desk lamp": 12, "oak chair": 0, "teapot": 3}
Product = Literal["desk lamp", "oak chair", "teapot"]  # the model can name no other


def count_stock(product: Product) -> int:
    """How many pieces of a product are in stock."""
    return STOCK[product]


def order_more(product: Product, pieces: Annotated[int, Field(ge=1, le=50)]) -> str:
    """Order more pieces of a product from its maker."""
    return f"{pieces} more of {product} will be there on Monday"


class Answer(BaseModel):
    product: Product
    in_stock: int = Field(ge=0, le=1000)


def main(llm: LLM) -> None:
    run = llm.run_tools(
        "How many desk lamps are in stock?",
        [count_stock, order_more],
        tool_choice="count_stock",  # of the first turn; a large model decides by itself: "auto"
        max_rounds=1,  # of calls; then it has to answer
        schema=Answer,
    )
    for message in run.messages:
        for call in message.get("tool_calls", ()):
            print("called", call["function"]["name"], call["function"]["arguments"])
        if message["role"] == "tool":
            print("  got", message["content"])
    print(repr(run.answer))


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
