"""LangChain: an agent that may call tools, and whose answer is a Python object."""

from langchain.agents import create_agent
from pydantic import BaseModel, Field

from structspec.integrations.langchain import ChatStructSpec

STOCK = {"lamp": 3, "clock": 0, "chair": 12}


def count_stock(item: str) -> int:
    """How many of an item are in stock."""
    return STOCK.get(item.lower().rstrip("s"), 0)


class Answer(BaseModel):
    """What the customer is told."""

    item: str = Field(max_length=20)
    in_stock: bool


def main(model: ChatStructSpec) -> None:
    # calls or the answer, in one grammar: neither can be malformed, at any turn
    agent = create_agent(model, [count_stock], response_format=Answer)
    asked = {"messages": [("user", "Do you have lamps?")]}
    said = agent.invoke(asked, {"recursion_limit": 20})
    for message in said["messages"]:
        print(f"{message.type}: {message.text or message.tool_calls}")
    print(repr(said["structured_response"]))


if __name__ == "__main__":
    main(ChatStructSpec(model="smollm2-135m", temperature=0, max_tokens=200))
