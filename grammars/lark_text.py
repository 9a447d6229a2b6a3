"""Writing a grammar in llguidance's Lark: rules and terminals get names, equal ones the same."""

from __future__ import annotations

import json

in_quotes = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes an encoder every time


class LarkText:
    """A grammar while it is written; each distinct body is one rule or terminal.

    Bodies are Lark text: rule bodies may name rules and terminals, terminal bodies (regular
    expressions, with `&` and `~` between them) only terminals.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, str] = {}
        self._num_names = 0

    def rule(self, body: str, own: str = "", same: str = "") -> str:
        """How to name the rule with this body.

        Where rules take a parameter `own` declares it (`::_`) and `same` passes it on.
        """
        key = body + own
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self.reserve()
            self.define(name, body, own)
        return name + same

    def reserve(self) -> str:
        """A new rule name, to be defined later: how rules recurse."""
        self._num_names += 1
        return f"r{self._num_names}"

    def define(self, name: str, body: str, own: str = "") -> None:
        """Give a reserved name its body; `name::_` takes a parameter, as with `own`.

        With `own` the body may do without it, which llguidance alone would refuse.
        """
        self._lines.append(f"{name}{own}: {body}{' %if ge(_, 0)' if own else ''}")

    def terminal(self, body: str) -> str:
        """The name of the terminal with this body."""
        name = self._names.get(f"T {body}")
        if name is None:
            self._num_names += 1
            name = self._names[f"T {body}"] = f"T{self._num_names}"
            self._lines.append(f"{name}: {body}")
        return name

    def text(self, start: str) -> str:
        """The whole grammar, whose start rule has this body."""
        return "\n".join((f"start: {start}", *self._lines, ""))


def literal(text: str) -> str:
    """Text as it stands, in a rule or a terminal body; must not be empty."""
    assert text
    return in_quotes(text).replace("\x7f", "\\u007f")  # a DEL may not stand in Lark as it is


def times(low: int, high: int | None) -> str:
    """How often what stands before may come; None is without an end."""
    if high is not None:
        return f"{{{low},{high}}}"
    return f"{{{low},}}" if low else "*"
