"""Random patterns over `a` and `b`, as text, in what Python's `re` and our dialect share."""

from __future__ import annotations

from hypothesis import strategies as st

ATOMS = ("a", "b", "ab", ".", "[ab]", "[^a]", r"\w", r"\d", r"\S", "[a-c]", r"\x61", "")
EDGES = ("^", "$", r"\b", r"\A", r"\Z")  # not \B: before 3.14 Python finds none in an empty text
COUNTS = ("*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,3}?", "{2,}", "{0}")


def patterns(*, has_lookaround: bool) -> st.SearchStrategy[str]:
    """Patterns with groups, counts, alternatives and edges, and perhaps lookaround."""
    atoms = st.sampled_from(ATOMS)
    leaves = st.one_of(atoms, atoms, atoms, st.sampled_from(EDGES)) if has_lookaround else atoms
    openings = ["(", "(?:"]
    if has_lookaround:
        openings += ["(?=", "(?!", "(?<=", "(?<!"]

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        groups = st.builds(
            lambda opening, body: f"{opening}{body})", st.sampled_from(openings), inner
        )
        counted = st.builds(
            lambda body, count: f"(?:{body}){count}", inner, st.sampled_from(COUNTS)
        )
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
            groups,
            counted,
            counted,
        )

    return st.recursive(leaves, larger, max_leaves=7)
