"""SentencePiece's model file (a protobuf) in the form of a `tokenizer.json`.

ModelProto      1: SentencePiece, repeated    2: TrainerSpec
SentencePiece   1: piece    2: score, a float    3: type
TrainerSpec     3: model_type
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from structspec.errors import ModelError
from structspec.tokenizer_spec import Spec, added_token

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # types of pieces
_UNIGRAM, _BPE = 1, 2  # types of models
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}

Piece = tuple[str, float, int]  # text, score, type


def spec_of_sentencepiece(data: bytes) -> Spec:
    """The content of the file as that of a `tokenizer.json`; ModelError where it is not whole."""
    try:
        pieces, model_type = _read(data)
    except (IndexError, ValueError, struct.error) as error:
        raise ModelError(f"this is no SentencePiece model: {error}") from None
    if not pieces:
        raise ModelError("this is no SentencePiece model: it has no pieces")
    if model_type not in (_UNIGRAM, _BPE):
        raise ModelError(f"a SentencePiece model of type {model_type} is not supported")
    model = _unigram(pieces) if model_type == _UNIGRAM else _bpe(pieces)
    added = [
        added_token(text, token_id, is_special=kind != _USER_DEFINED)
        for token_id, (text, _, kind) in enumerate(pieces)
        if kind in (_CONTROL, _USER_DEFINED, _UNUSED)
    ]
    has_bytes = any(kind == _BYTE for _, _, kind in pieces)
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": _METASPACE,
        "decoder": _METASPACE,
        "model": model | {"byte_fallback": has_bytes},
    }


def _unigram(pieces: list[Piece]) -> dict[str, Any]:
    vocab = [[text, score] for text, score, _ in pieces]
    return {"type": "Unigram", "vocab": vocab, "unk_id": _unknown_id(pieces)}


def _bpe(pieces: list[Piece]) -> dict[str, Any]:
    """The merges are not in the file: whatever joins into a piece, the highest score first."""
    vocab = {text: token_id for token_id, (text, _, _) in enumerate(pieces)}
    normal = {text: score for text, score, kind in pieces if kind == _NORMAL}
    merges: list[tuple[str, str]] = []
    for whole in sorted(normal, key=lambda text: -normal[text]):
        cuts = ((whole[:i], whole[i:]) for i in range(1, len(whole)))
        pairs = [pair for pair in cuts if pair[0] in normal and pair[1] in normal]
        merges += sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    unknown_id = _unknown_id(pieces)
    unknown = None if unknown_id is None else pieces[unknown_id][0]
    model = {"type": "BPE", "vocab": vocab, "merges": merges}
    return model | {"unk_token": unknown, "fuse_unk": True}


def _unknown_id(pieces: list[Piece]) -> int | None:
    return next((i for i, (_, _, kind) in enumerate(pieces) if kind == _UNKNOWN), None)


def _read(data: bytes) -> tuple[list[Piece], int]:
    pieces: list[Piece] = []
    model_type = _UNIGRAM
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append((piece[1].decode(), piece.get(2, 0.0), piece.get(3, _NORMAL)))
        elif number == 2:
            model_type = dict(_fields(value)).get(3, _UNIGRAM)
    return pieces, model_type


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: numbers, floats and bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield number, value
        elif kind == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("it ends too early")
            yield number, data[position : position + length]
            position += length
        elif kind == 5:
            yield number, struct.unpack_from("<f", data, position)[0]
            position += 4
        elif kind == 1:
            position += 8  # doubles, of which none is of interest
        else:
            raise ValueError(f"a field of kind {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
