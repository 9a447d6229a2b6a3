"""Let the model choose a tool: the answer is an object of the chosen class, ready to match on."""

from typing import Literal

from pydantic import BaseModel

from structspec import LLM


class GetWeather(BaseModel):
    tool: Literal["get_weather"]
    city: str


class SendMail(BaseModel):
    tool: Literal["send_mail"]
    to: str
    subject: str


def main(llm: LLM) -> None:
    tools = "Tools: get_weather(city), send_mail(to, subject)."
    request = "What is the weather in Paris?"
    call = llm.generate(f"{tools} Choose one for: {request}", schema=GetWeather | SendMail)
    match call:
        case GetWeather(city=city):
            print(f"looking up the weather in {city}")
        case SendMail(to=to, subject=subject):
            print(f"writing to {to} about {subject}")


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
