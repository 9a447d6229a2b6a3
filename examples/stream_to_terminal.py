"""Show an object in the terminal while it is written: each value as soon as it is whole."""

import datetime as dt
from typing import Annotated

from pydantic import BaseModel, Field
from rich.live import Live
from rich.pretty import Pretty

from structspec import LLM

NOTE = "Ben Patel, Hana Huang and Gus Lopez meet on 2026-03-14 at 10:30 in room Aurora."
Words = Annotated[str, Field(max_length=30)]


class Meeting(BaseModel):
    attendees: list[Words] = Field(min_length=1, max_length=4)
    date: dt.date
    place: Words


def main(llm: LLM) -> None:
    with Live(refresh_per_second=20, transient=True) as live:
        # Partial values have the attributes of a Meeting: None where nothing is yet, lists grow.
        for meeting in llm.stream_partial(f"Extract the meeting: {NOTE}", schema=Meeting):
            live.update(Pretty(meeting))
    print(f"{', '.join(meeting.attendees)} on {meeting.date:%d %B} in {meeting.place}")


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
