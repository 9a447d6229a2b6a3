"""Retrieval with citations that exist: what is named and quoted can only be what was retrieved."""

from typing import Literal

from pydantic import BaseModel, create_model

from structspec import LLM

DOCUMENTS = {
    "lamp-manual": "The desk lamp takes a bulb of at most 40 watts. Unplug it before a change.",
    "returns": "Goods can be sent back within 30 days. We pay the postage.",
    "shipping": "Orders before noon leave the same day. Delivery takes two to four days.",
    "clock-manual": "The wall clock runs on one AA battery. It lasts about two years.",
}


def retrieve(question: str, number: int = 2) -> list[str]:
    """The documents that share most words with the question; your search index goes here."""
    words = {word.strip("?.,").lower() for word in question.split()}
    shared = {name: len(words & {*text.lower().split()}) for name, text in DOCUMENTS.items()}
    return sorted(shared, key=shared.__getitem__, reverse=True)[:number]


def answer_type(names: list[str]) -> type[BaseModel]:
    """An answer from these documents: one of their names, and one of their sentences.

    A type of its own for each request is cheap: compiling takes milliseconds, and none of that is
    waited for while the prompt is read.
    """
    sentences = [one.rstrip(".") for name in names for one in DOCUMENTS[name].split(". ")]
    return create_model("Answer", source=Literal[*names], quote=Literal[*sentences])


def main(llm: LLM) -> None:
    question = "How many days do I have to send goods back?"
    names = retrieve(question)
    context = "\n".join(f"[{name}] {DOCUMENTS[name]}" for name in names)
    answer = llm.generate(f"{context}\n\n{question}", schema=answer_type(names))
    print(f'"{answer.quote}" [{answer.source}]')


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
