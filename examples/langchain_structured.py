"""LangChain: a chain whose output is a Python object, as it grows and whole."""

from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel, Field

from structspec.integrations.langchain import ChatStructSpec


class Person(BaseModel):
    """Somebody that a text tells of."""

    name: str = Field(max_length=40)
    born: int = Field(ge=1000, le=2100)


def main(model: ChatStructSpec) -> None:
    prompt = ChatPromptTemplate.from_template("Extract the person: {text}")
    chain = prompt | model.with_structured_output(Person, stream_partial=True)
    for person in chain.stream({"text": "Ada Lovelace was born in London in 1815."}):
        print(repr(person))  # partial ones first: what is there of it so far
    rows = ["Alan Turing, 1912", "Grace Hopper, 1906", "Emmy Noether, 1882"]
    for person in chain.batch([{"text": row} for row in rows]):  # all in the engine together
        print(f"{person.name} ({person.born})")


if __name__ == "__main__":
    main(ChatStructSpec(model="smollm2-135m", temperature=0))
