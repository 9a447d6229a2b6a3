"""Extract a nested pydantic model from a sentence."""

from pydantic import BaseModel, Field

from structspec import LLM


class Address(BaseModel):
    street: str
    city: str


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)
    address: Address


def main(llm: LLM) -> None:
    text = "Maria Rossi, 34 years old, lives at 12 Garden Street in Rome."
    person = llm.generate(f"Extract the person: {text}", schema=Person)
    print(repr(person))


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
