"""SQL by a grammar made of the database's own schema: no statement fails, none can write."""

import sqlite3

from structspec import LLM

ROWS = (("desk lamp", "Oslo", 24.5), ("oak chair", "Lima", 119.0), ("teapot", "Oslo", 18.0))

# The grammar makes it valid; examples help a small model to mean what it writes.
SHOTS = """\
Table: orders(product, city, price)

What is the sum of the prices of orders from Cairo?
SELECT SUM(price) FROM orders WHERE city = 'Cairo'

Which products cost less than 50?
SELECT product FROM orders WHERE price < 50

"""


def open_database() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (product TEXT, city TEXT, price REAL)")
    database.executemany("INSERT INTO orders VALUES (?, ?, ?)", ROWS)
    return database


def grammar_of(database: sqlite3.Connection, table: str) -> str:
    """One SELECT over a table, in Lark: columns are the table's, texts the values it holds."""
    columns = {name: kind for _, name, kind, *_ in database.execute(f"PRAGMA table_info({table})")}
    texts, numbers = [], []
    for name, kind in columns.items():
        if kind == "TEXT":
            values = database.execute(f"SELECT DISTINCT {name} FROM {table}").fetchall()
            literals = (f'''"'{value.replace("'", "''")}'"''' for (value,) in values)
            texts.append(f'"{name} = " ({" | ".join(literals)})')
        else:
            numbers.append(f'"{name}"')
    return f"""
start: "SELECT " what " FROM {table}" (" WHERE " condition)?
what: "COUNT(*)" | ("SUM" | "AVG" | "MAX" | "MIN") "(" number ")" | column (", " column)?
condition: {" | ".join(texts)} | number (" < " | " > ") NUMBER
column: {" | ".join(f'"{name}"' for name in columns)}
number: {" | ".join(numbers)}
NUMBER: /[0-9]{{1,4}}/
"""


def main(llm: LLM) -> None:
    with open_database() as database:
        question = "What is the sum of the prices of orders from Oslo?"
        statement = llm.generate(f"{SHOTS}{question}\n", grammar=grammar_of(database, "orders"))
        print(statement)
        print(database.execute(statement).fetchall())


if __name__ == "__main__":
    with LLM("smollm2-135m") as model:
        main(model)
