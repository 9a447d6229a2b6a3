"""From the text of a PDF, columns and line breaks and all, into nested models."""

import datetime as dt
from typing import Annotated

from pydantic import BaseModel, Field

from structspec import LLM

# What a PDF's text layer looks like, from pypdf's `page.extract_text()` for example.
PAGE = """\
INVOICE                                 Northwind Lighting Ltd.
Invoice number: NW-2041                 14 Harbour Road
Date: 2026-03-17                        Bristol

Customer: Ada Lovelace

Quantity  Item             Unit price
3         Desk lamp             24.50
1         Wall clock            39.00
Total EUR                      112.50
"""

Text = Annotated[str, Field(max_length=40)]


class Item(BaseModel):
    quantity: int = Field(ge=1, le=999)
    name: Text
    unit_price: float = Field(ge=0, le=10_000)


class Invoice(BaseModel):
    number: str = Field(pattern=r"^[A-Z]{2}-[0-9]{4}$")  # held by the mask, as all of this is
    date: dt.date
    customer: Text
    items: list[Item] = Field(min_length=1, max_length=2)  # bounds keep small models from rambling
    total: float = Field(ge=0, le=100_000)


def main(llm: LLM) -> None:
    invoice = llm.generate(f"Extract the invoice.\n\n{PAGE}", schema=Invoice)
    print(f"{invoice.number} of {invoice.date:%d %B %Y} for {invoice.customer}")
    for item in invoice.items:
        print(f"  {item.quantity} x {item.name} at {item.unit_price:.2f}")
    added_up = sum(item.quantity * item.unit_price for item in invoice.items)
    # Types are always right; whether the values are is for the application to check.
    print(f"  total {invoice.total:.2f}, items add up to {added_up:.2f}")


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
