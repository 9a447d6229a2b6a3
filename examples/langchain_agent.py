"""LangChain: an agent that may call tools, and whose answer is a Python object."""

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
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


@wrap_model_call
def answer_after_a_call(request, handler):
    """Larger models need no such thing: this one calls its tools for ever where it may."""
    is_called = request.messages[-1].type == "tool"
    return handler(request.override(model_settings={"tool_choice": "none"} if is_called else {}))


def main(model: ChatStructSpec) -> None:
    # calls or the answer, in one grammar: neither can be malformed, at any turn
    agent = create_agent(
        model, [count_stock], response_format=Answer, middleware=[answer_after_a_call]
    )
    said = agent.invoke({"messages": [("user", "Do you have lamps?")]})
    for message in said["messages"]:
        print(f"{message.type}: {message.text or message.tool_calls}")
    print(repr(said["structured_response"]))


if __name__ == "__main__":
    main(ChatStructSpec(model="smollm2-135m", temperature=0, max_tokens=200))
