"""What a `tokenizer.json` says: the bytes of its tokens, which of them are none, where text ends.

Other kinds of files are brought into its form first (`tekken.py`, `sentencepiece.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from structspec.errors import ModelError

Spec = Mapping[str, Any]

# Tokens that end a turn or a text, whatever a checkpoint's own settings forgot to say.
_ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "</s>",
    "<eos>",
)
_MESSAGE_END, _RETURN = "<|end|>", "<|return|>"  # the first ends texts, unless the other does
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BLANK = "▁"  # what SentencePiece writes for it


def bytes_of_tokens(spec: Spec) -> tuple[bytes | None, ...]:
    """The bytes of every token; None for special ones, the unknown token and empty ones."""
    _check_spells_text(spec)
    model, added = spec["model"], _added(spec)
    ids = _model_ids(spec)
    tokens: list[bytes | None] = [None] * (max(all_ids(spec).values(), default=-1) + 1)
    to_bytes = _byte_level_bytes if _is_byte_level(spec) else _reader_of_pieces(spec)
    for piece, token_id in ids.items():
        tokens[token_id] = to_bytes(piece) or None
    for token in added:  # an added token is its own text, not the model's alphabet
        tokens[token["id"]] = None if token["special"] else token["content"].encode() or None
    unknown_id = ids.get(model.get("unk_token"), model.get("unk_id"))
    if unknown_id is not None:
        tokens[unknown_id] = None
    return tuple(tokens)


def special_ids(spec: Spec) -> dict[str, int]:
    """The special tokens by name."""
    return {token["content"]: token["id"] for token in _added(spec) if token["special"]}


def all_ids(spec: Spec) -> dict[str, int]:
    """Every token by name, as the file spells it."""
    return _model_ids(spec) | {token["content"]: token["id"] for token in _added(spec)}


def known_ends(special: Mapping[str, int]) -> set[int]:
    """Those of the special tokens that are known to end a turn or a text."""
    names = _ENDS if _RETURN in special else (*_ENDS, _MESSAGE_END)
    return {special[name] for name in names if name in special}


def find_stop_tokens(
    spec: Spec, eos_tokens: Collection[str], eos_token_ids: Collection[int]
) -> tuple[int, ...]:
    """The end tokens that were named, and all known ones; raises ModelError if there are none."""
    ids = all_ids(spec)
    stops = {*eos_token_ids, *known_ends(special_ids(spec))}
    stops |= {ids[name] for name in eos_tokens if name in ids}
    stops = stops or known_ends(ids)
    if not stops:
        raise ModelError("the tokenizer names no end token: pass stop_token_ids")
    return tuple(sorted(stops))


def exact_encoder(spec: Spec) -> Callable[[str], list[int]]:
    """Canonical tokenisation, but of exactly the text given: as it would stand amid other text.

    No blank is put before it, no character is normalised, and text that spells a special token
    stays text.
    """
    from tokenizers import Tokenizer

    cuts = [_cut_names(spec), _exact_pre_tokenizer(spec.get("pre_tokenizer"))]
    cuts = [cut for cut in cuts if cut is not None]
    exact = dict(spec) | {
        "model": _exact_model(spec),
        "normalizer": _exact_normalizer(spec.get("normalizer")),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts} if cuts else None,
        "added_tokens": [token | {"lstrip": False, "rstrip": False} for token in _added(spec)],
        "post_processor": None,
        "padding": None,
        "truncation": None,
    }
    try:
        tokenizer = Tokenizer.from_str(json.dumps(exact))
    except Exception as error:  # the library raises nothing more precise
        raise ModelError(f"the tokenizer cannot be read: {error}") from None
    tokenizer.encode_special_tokens = True

    def encode_text(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode_text


def added_token(name: str, token_id: int, *, is_special: bool) -> dict[str, Any]:
    """An entry of `added_tokens`."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": name, "special": is_special, **flags}


def byte_level_piece(data: bytes) -> str:
    """Bytes in the byte-to-character alphabet of GPT-2."""
    return data.decode("latin-1").translate(_characters_of_bytes())


def _added(spec: Spec) -> list[dict[str, Any]]:
    return spec.get("added_tokens") or []


def _model_ids(spec: Spec) -> dict[str, int]:
    vocab = spec["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram: [piece, score] pairs
        return {piece: token_id for token_id, (piece, _) in enumerate(vocab)}
    return dict(vocab)


def _check_spells_text(spec: Spec) -> None:
    model = spec["model"]
    is_marked = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    if model.get("type") == "WordPiece" or is_marked:
        raise ModelError(
            "the tokens of this tokenizer do not spell text: it marks where words go on or end,"
            " and leaves blanks out"
        )


def _is_byte_level(spec: Spec) -> bool:
    """Whether tokens are written in the byte-to-character alphabet of GPT-2."""
    return any('"ByteLevel"' in json.dumps(spec.get(part)) for part in ("pre_tokenizer", "decoder"))


@cache
def _byte_alphabet() -> dict[str, int]:
    """Character to byte: printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in alphabet)
    return alphabet | {chr(0x100 + n): byte for n, byte in enumerate(others)}


@cache
def _characters_of_bytes() -> dict[int, str]:
    return {byte: character for character, byte in _byte_alphabet().items()}


def _byte_level_bytes(piece: str) -> bytes:
    alphabet = _byte_alphabet()
    if all(character in alphabet for character in piece):
        return bytes(alphabet[character] for character in piece)
    return piece.encode()


def _reader_of_pieces(spec: Spec) -> Callable[[str], bytes]:
    """SentencePiece: `▁` is a blank and, if bytes stand in for rare text, `<0xNN>` one of them."""
    decoder = json.dumps(spec.get("decoder"))
    has_bytes = spec["model"].get("byte_fallback") or '"ByteFallback"' in decoder

    def to_bytes(piece: str) -> bytes:
        if has_bytes and (match := _BYTE_TOKEN.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        return piece.replace(_BLANK, " ").encode()

    return to_bytes


def _exact_model(spec: Spec) -> dict[str, Any]:
    model = dict(spec["model"])
    if "dropout" in model:
        model["dropout"] = None
    return model


def _cut_names(spec: Spec) -> dict[str, Any] | None:
    """A cut into the names of tokens that do not spell themselves, as `</s>` and `<0x41>`.

    Unigram would take such text for the token. BPE does not: no merges lead there.
    """
    vocab = spec["model"]["vocab"]
    if not isinstance(vocab, list):
        return None
    texts = bytes_of_tokens(spec)
    pieces = (piece for piece, _ in vocab)
    spelled = ((piece, piece.replace(_BLANK, " ").encode()) for piece in pieces)
    names = [piece for i, (piece, data) in enumerate(spelled) if data != texts[i] and piece[1:]]
    if not names:
        return None
    pattern = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _exact_normalizer(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Only what spells blanks as the tokens do."""
    if part is None:
        return None
    if part["type"] == "Sequence":
        kept = [inner for inner in map(_exact_normalizer, part["normalizers"]) if inner]
        return part | {"normalizers": kept} if kept else None
    is_spelling = part["type"] == "Replace" and part["pattern"] == {"String": " "}
    return part if is_spelling else None


def _exact_pre_tokenizer(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """The same cuts, with no blank added or lost."""
    if part is None or part["type"] == "WhitespaceSplit":
        return None
    if part["type"] == "Sequence":
        kept = [inner for inner in map(_exact_pre_tokenizer, part["pretokenizers"]) if inner]
        return part | {"pretokenizers": kept} if kept else None
    if part["type"] == "Metaspace":
        return {k: v for k, v in part.items() if k != "add_prefix_space"} | {
            "prepend_scheme": "never"
        }
    return part | {"add_prefix_space": False} if part["type"] == "ByteLevel" else part
