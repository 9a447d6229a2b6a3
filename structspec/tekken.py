"""Mistral's `tekken.json` in the form of a `tokenizer.json`: byte-level BPE from ranks.

Special tokens come first, `default_num_special_tokens` of them, those without a name filled up;
behind them the tokens by rank, as many as `default_vocab_size` leaves room for.
"""

from __future__ import annotations

import base64
from typing import Any

from structspec.errors import ModelError
from structspec.tokenizer_spec import Spec, added_token, byte_level_piece

# What files up to version 7 leave unsaid.
_DEFAULT_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)


def is_tekken(data: Any) -> bool:
    """Whether this is the content of such a file."""
    return isinstance(data, dict) and {"config", "vocab"} <= data.keys()


def spec_of_tekken(data: Spec) -> Spec:
    """The content of the file as that of a `tokenizer.json`; ModelError where it is not whole."""
    try:
        config = data["config"]
        num_special: int = config["default_num_special_tokens"]
        num_ranks: int = config["default_vocab_size"] - num_special
        ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:num_ranks]}
        names = _special_names(data.get("special_tokens"), num_special)
        pattern: str = config["pattern"]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the tekken file is damaged: {error!r}") from None
    if set(ranks.values()) != set(range(num_ranks)):
        raise ModelError(f"the tekken file does not hold the ranks 0 to {num_ranks - 1}")
    pieces = {data: byte_level_piece(data) for data in ranks}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "added_tokens": [added_token(name, i, is_special=True) for i, name in enumerate(names)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [cut, to_bytes | {"use_regex": False}],
        },
        "decoder": to_bytes | {"use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {pieces[data]: num_special + rank for data, rank in ranks.items()},
            "merges": [[pieces[left], pieces[right]] for left, right in _merges(ranks)],
            "ignore_merges": True,  # a word that is a token is taken as it is
        },
    }


def _special_names(given: list[dict[str, Any]] | None, num_special: int) -> list[str]:
    named: dict[int, str] = dict(enumerate(_DEFAULT_SPECIAL))
    if given is not None:
        named = {token["rank"]: token["token_str"] for token in given}
    return [named.get(i, f"<SPECIAL_{i}>") for i in range(num_special)]


def _merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every way to join two tokens into one, the lowest rank of the whole first."""
    found: list[tuple[bytes, bytes]] = []
    for whole in sorted(ranks, key=ranks.__getitem__):
        cuts = ((whole[:i], whole[i:]) for i in range(1, len(whole)))
        pairs = [pair for pair in cuts if pair[0] in ranks and pair[1] in ranks]
        found += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return found
