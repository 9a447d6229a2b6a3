"""instructor in every mode that fits a server of one's own: python instructor_client.py URL."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import instructor
import openai
from instructor.core import InstructorRetryException
from pydantic import BaseModel, Field

MODEL = "smollm2-135m"
ASK = [{"role": "user", "content": "Ada Lovelace was born in 1815 in London."}]
MODES = ("JSON_SCHEMA", "TOOLS", "MD_JSON", "RESPONSES_TOOLS", "JSON")


class Person(BaseModel):
    name: str = Field(max_length=20)
    born: int


class City(BaseModel):
    name: str = Field(max_length=20)


def main() -> None:
    for name in MODES:
        plain = openai.OpenAI(base_url=sys.argv[1], api_key="none", timeout=300)
        client = instructor.from_openai(plain, mode=getattr(instructor.Mode, name))
        options = {} if name == "RESPONSES_TOOLS" else {"temperature": 0}
        if name == "MD_JSON":  # nothing on the wire says what is wanted: a small model may fail
            options["extra_body"] = {"structured_outputs": {"json": Person.model_json_schema()}}
        try:
            person = client.chat.completions.create(
                model=MODEL, messages=ASK, response_model=Person, max_retries=0, **options
            )
        except Exception as error:
            if name != "JSON":  # which asks for any object, and tells the model of the schema
                raise
            print(f"     {name}: the model's own: {str(error)[:60]!r}")
            continue
        assert isinstance(person, Person), name
        print(f"ok   {name}: {person!r}", flush=True)
    plain = openai.OpenAI(base_url=sys.argv[1], api_key="none", timeout=300)
    client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
    parts = list(
        client.chat.completions.create_partial(model=MODEL, messages=ASK, response_model=Person)
    )
    assert parts and isinstance(parts[-1].born, int)
    print(f"ok   partial objects: {len(parts)}")
    items = client.chat.completions.create_iterable(
        model=MODEL, messages=ASK, response_model=Person, temperature=0, max_tokens=90
    )
    first = next(iter(items))  # how many more it lists is the model's own
    assert isinstance(first, Person)
    print(f"ok   items: {first!r}", flush=True)
    parallel = instructor.from_openai(plain, mode=instructor.Mode.PARALLEL_TOOLS)
    try:  # it sends tool_choice "auto": the model may answer in words
        calls = parallel.chat.completions.create(
            model=MODEL,
            messages=ASK,
            response_model=Iterable[Person | City],
            parallel_tool_calls=False,  # else a small model calls until max_tokens
            max_retries=0,
            temperature=0,
            max_tokens=90,
        )
        (call,) = calls
    except InstructorRetryException as error:
        assert "No tool calls in response" in str(error)
        print("     PARALLEL_TOOLS: the model's own: it answered in words")
    else:
        assert isinstance(call, Person | City)
        print(f"ok   PARALLEL_TOOLS: {call!r}")


if __name__ == "__main__":
    main()
