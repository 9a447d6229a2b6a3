"""Text of a fixed form: a date by regex, arithmetic by a context-free grammar."""

from structspec import LLM

ARITHMETIC = """
start: sum
sum: product (" + " product)~0..4
product: NUMBER (" * " NUMBER)~0..3
NUMBER: /[1-9][0-9]?/
"""


def main(llm: LLM) -> None:
    date = llm.generate(
        "What is the date July 20, 1969 in the form YYYY-MM-DD?",
        regex=r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    )
    print(date)
    print(llm.generate("Write as arithmetic: three plus four times five.", grammar=ARITHMETIC))


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
