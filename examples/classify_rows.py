"""Classify a thousand rows, with a progress bar; run it again and it goes on where it stopped.

python examples/classify_rows.py [--rows 1000] [--out labels.jsonl]
"""

import argparse
import json
from pathlib import Path
from typing import Literal

from structspec import LLM, Generation

Label = Literal["positive", "negative"]

# Stands for your own rows: a CSV file's, a table's.
PHRASES = ("I love this {}, it is wonderful.", "Terrible. The {} broke after two days.")
THINGS = ("lamp", "chair", "teapot", "clock", "mirror", "rug", "bookshelf")


def load_rows(number: int) -> list[str]:
    pairs = ((index, PHRASES[index % 2], THINGS[index % 7]) for index in range(number))
    return [f"{phrase.format(thing)} (order {index})" for index, phrase, thing in pairs]


def main(llm: LLM, number: int = 1000, out: Path = Path("labels.jsonl")) -> None:
    rows = load_rows(number)
    lines = out.read_text().splitlines() if out.exists() else []
    done = {json.loads(line)["row"] for line in lines}
    missing = [index for index in range(number) if index not in done]
    prompts = (f"Review: {rows[i]} Is the review positive or negative?" for i in missing)
    with out.open("a") as file:

        def store(index: int, result: Generation | Exception) -> None:
            """Called as each row is done: an interrupted run loses what is in flight, no more."""
            if isinstance(result, Generation):  # what failed is tried again by the next run
                line = json.dumps({"row": missing[index], "label": result.value})
                print(line, file=file, flush=True)

        llm.generate_batch(prompts, schema=Label, on_result=store, return_errors=True)
    print(f"{len(done)} rows were done before, {len(missing)} in this run")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("labels.jsonl"))
    options = parser.parse_args()
    with LLM("smollm2-135m") as model:
        main(model, options.rows, options.out)
