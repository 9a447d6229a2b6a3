"""Options that change logits, or tell what became of them."""

from __future__ import annotations

import argparse

from structspec.errors import InvalidRequest


def add_logits(group: argparse._ArgumentGroup) -> None:
    """The options, for a command that generates."""
    group.add_argument(
        "--logit-bias",
        action="append",
        metavar="ID=N",
        help="add N to this token's logit, -100 to 100; give it several times",
    )
    for name, says in (
        ("presence", "take N from the logits of written tokens"),
        ("frequency", "take N from them for each time they were written"),
        ("repetition", "divide by N what speaks for tokens that were read or written"),
    ):
        group.add_argument(f"--{name}-penalty", type=float, metavar="N", help=says)
    group.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="tell how likely each token was, and the N likeliest at its place (with --raw)",
    )
    group.add_argument(
        "--logprobs-mode",
        choices=("raw", "processed"),
        help="to the model itself, or in what was drawn from (default: raw)",
    )
    group.add_argument(
        "--prompt-logprobs", type=int, metavar="N", help="tell the same of the prompt's tokens"
    )
    group.add_argument(
        "--token-details",
        type=int,
        metavar="N",
        help="tell of each token where it came from, and N alternatives of those allowed"
        " (with --raw)",
    )


def read_logit_bias(options: argparse.Namespace) -> dict[int | str, float] | None:
    """What --logit-bias says, by token id."""
    if options.logit_bias is None:
        return None
    biases: dict[int | str, float] = {}
    for given in options.logit_bias:
        token_id, _, number = given.partition("=")
        try:
            bias = float(number)
        except ValueError:
            raise InvalidRequest(f"--logit-bias takes ID=N, such as 42=-5, not {given!r}") from None
        if token_id in biases:
            raise InvalidRequest(f"--logit-bias names the token {token_id} twice")
        biases[token_id] = bias
    return biases
