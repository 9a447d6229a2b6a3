"""`~` in Lark text, kept to what is text.

llguidance's `~` also takes bytes that are in no text, and with them special tokens. So each `~X`
becomes a terminal of its own at the end of the grammar, where it is joined with any text.
"""

from __future__ import annotations

from structspec.grammars.lark_reader import Token, tokens_of

_ANY = "/(?s:.*)/"


def keep_to_text(text: str, prefix: str = "STRUCTSPEC_NOT") -> str:
    """The same grammar with every negation among texts; lines stay where they are."""
    tokens = tokens_of(text)
    written: list[str] = []
    terminals: list[str] = []
    position = 0
    for index, token in enumerate(tokens):
        if token.text != "~" or token.start < position:
            continue
        end = _atom_end(tokens, index + 1)
        name = f"{prefix}_{len(terminals)}"
        inside = keep_to_text(text[token.start + 1 : end], name)
        atom, _, nested = inside.partition("\n" + name)
        terminals += [f"{name}: {_ANY} & ~{atom}"] + ([name + nested] if nested else [])
        written += [text[position : token.start], name]
        position = end
    if not terminals:
        return text
    return "\n".join(["".join(written) + text[position:], *terminals])


def _atom_end(tokens: list[Token], index: int) -> int:
    """Behind the literal, name or group that begins at this token."""
    depth = 0
    for number in range(index, len(tokens)):
        token = tokens[number]
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        is_open = depth > 0 or token.text == "~" or token.kind == "newline"
        is_range = number + 1 < len(tokens) and ".." in (token.text, tokens[number + 1].text)
        if not is_open and not is_range:
            return token.start + len(token.text)
    return tokens[-1].start + len(tokens[-1].text)
