"""Classify with an Enum, or with plain choices where a string will do."""

from enum import Enum

from structspec import LLM


class Mood(Enum):
    POSITIVE = "positive"
    NEGATIVE = "negative"


REVIEWS = (
    "I love this phone, the camera is wonderful.",
    "Terrible. It broke after two days.",
)


def main(llm: LLM) -> None:
    prompts = [f"Review: {review} Is the review positive or negative?" for review in REVIEWS]
    for review, mood in zip(REVIEWS, llm.generate(prompts, schema=Mood), strict=True):
        print(mood, "-", review)
    topic = llm.generate(
        "Is this about sports, music or cooking? The band plays its new songs tonight.",
        choices=["sports", "music", "cooking"],
    )
    print(topic)


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
