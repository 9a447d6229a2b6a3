"""Run what docs/agents.md has for one framework: python recipe.py SECTION URL."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
WRITTEN_URL = "http://localhost:8000/v1"


def read_recipe(section: str) -> str:
    """The Python of a section, from its heading to the next."""
    found = re.search(
        rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", DOCUMENT.read_text(), re.M | re.S
    )
    assert found is not None, f"{DOCUMENT.name} has no section {section}"
    code = "\n".join(re.findall(r"```python\n(.*?)```", found[1], re.S))
    assert WRITTEN_URL in code, f"the recipe of {section} names no server"
    return code


if __name__ == "__main__":
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would look on the internet
    section, url = sys.argv[1:]
    code = read_recipe(section).replace(WRITTEN_URL, url)
    exec(
        compile(code, f"{DOCUMENT.name}: {section}", "exec", dont_inherit=True),
        {"__name__": "recipe"},
    )
    print(f"ok   the recipe of {DOCUMENT.name}")
