"""Text of a fixed form: a date by regex, arithmetic by a context-free grammar."""

from structspec import LLM

ARITHMETIC = """
start: term (" + " term)~1..4
term: NUMBER | "(" NUMBER " * " NUMBER ")"
NUMBER: /[1-9][0-9]?/
"""


def main(llm: LLM) -> None:
    date = llm.generate(
        "Write the date as YYYY-MM-DD. The first moon landing was on July 20, 1969.",
        regex=r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    )
    print(date)
    print(llm.generate("Write as arithmetic: three plus four plus five.", grammar=ARITHMETIC))


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
