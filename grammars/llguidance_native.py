"""llguidance's C interface, which the shared library behind its Python module exports too.

Its matchers can be moved and asked for rows by threads that know nothing of Python, and each copy
has a lexer of its own, so that no two threads ever wait for each other. It cannot tell forced text.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from pathlib import Path
from typing import Any

import llguidance
import numpy as np

from structspec.grammars.base import MatcherFailed
from structspec.vocabulary import Vocabulary

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
MASK, TAKE, UNDO = (
    "llg_matcher_compute_mask_into",
    "llg_matcher_consume_tokens",
    "llg_matcher_rollback",
)
CHECK, FORCED, MAY_END = (
    "llg_matcher_validate_tokens",
    "llg_matcher_compute_ff_tokens",
    "llg_matcher_is_accepting",
)


class _Limits(ctypes.Structure):
    _fields_ = (
        ("max_items_in_row", _SIZE),
        ("initial_lexer_fuel", ctypes.c_uint64),
        ("step_lexer_fuel", ctypes.c_uint64),
        ("step_max_items", _SIZE),
        ("max_lexer_states", _SIZE),
        ("max_grammar_size", _SIZE),
        ("precompute_large_lexemes", ctypes.c_bool),
        ("verbose_errors", ctypes.c_bool),
    )


class _GrammarInit(ctypes.Structure):
    _fields_ = (
        ("tokenizer", _POINTER),
        ("log_buffer_level", ctypes.c_uint32),
        ("log_stderr_level", ctypes.c_uint32),
        ("ff_tokens_ok", ctypes.c_bool),
        ("backtrack_ok", ctypes.c_bool),
        ("limits", _Limits),
    )


class _TokenizerInit(ctypes.Structure):
    _fields_ = (
        ("struct_size", _SIZE),
        ("vocab_size", ctypes.c_uint32),
        ("tok_eos", ctypes.c_uint32),
        ("token_lens", _POINTER),
        ("token_bytes", ctypes.c_char_p),
        ("tokenizer_json", ctypes.c_char_p),
        ("tokenize_assumes_string", ctypes.c_bool),
        ("tokenize_fn", _POINTER),
        ("use_approximate_greedy_tokenize_fn", ctypes.c_bool),
        ("tokenize_user_data", _POINTER),
        ("slices", _POINTER),
        ("tok_eos_extra", _POINTER),
        ("tok_eos_extra_count", ctypes.c_uint32),
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llg_new_tokenizer_v2": (_POINTER, (_POINTER, ctypes.c_char_p, _SIZE)),
    "llg_free_tokenizer": (None, (_POINTER,)),
    "llg_constraint_init_set_defaults": (None, (_POINTER, _POINTER)),
    "llg_new_matcher": (_POINTER, (_POINTER, ctypes.c_char_p, ctypes.c_char_p)),
    "llg_clone_matcher": (_POINTER, (_POINTER,)),
    "llg_free_matcher": (None, (_POINTER,)),
    "llg_matcher_is_error": (ctypes.c_bool, (_POINTER,)),
    "llg_matcher_get_error": (ctypes.c_char_p, (_POINTER,)),
    "llg_matcher_reset": (ctypes.c_int32, (_POINTER,)),
    "llg_matcher_consume_token": (ctypes.c_int32, (_POINTER, ctypes.c_uint32)),
    MASK: (ctypes.c_int32, (_POINTER, _POINTER, _SIZE)),
    TAKE: (ctypes.c_int32, (_POINTER, _POINTER, _SIZE)),
    UNDO: (ctypes.c_int32, (_POINTER, _SIZE)),
    CHECK: (ctypes.c_int32, (_POINTER, _POINTER, _SIZE)),
    FORCED: (ctypes.c_int32, (_POINTER, _POINTER, _SIZE)),
    MAY_END: (ctypes.c_bool, (_POINTER,)),
}


@functools.cache
def library() -> Any:
    """The functions, typed; None where the module's library does not export them all."""
    files = [*Path(llguidance.__file__).parent.glob("_lib*.so")]
    if len(files) != 1:
        return None
    found = ctypes.CDLL(str(files[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        if not hasattr(found, name):
            return None
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


class NativeTokenizer:
    """A vocabulary as the C interface reads it; to be used for as long as that is kept."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        tokens: list[bytes],
        spelling: tuple[int, int],
        slices: list[str],
    ) -> None:
        """`spelling` is the memory and the function that spells forced text."""
        memory, function = spelling
        first, *others = vocabulary.stop_token_ids
        lengths = np.array([len(token) for token in tokens], np.uint32)
        extra = np.array([*others, first], np.uint32)
        patterns = (ctypes.c_char_p * (len(slices) + 1))(*(s.encode() for s in slices), None)
        init = _TokenizerInit(
            struct_size=ctypes.sizeof(_TokenizerInit),
            vocab_size=len(tokens),
            tok_eos=first,
            token_lens=lengths.ctypes.data,
            token_bytes=b"".join(tokens),
            tokenize_assumes_string=True,
            tokenize_fn=function,
            tokenize_user_data=memory,
            slices=ctypes.cast(patterns, _POINTER),
            tok_eos_extra=extra.ctypes.data,
            tok_eos_extra_count=len(others),
        )
        reason = ctypes.create_string_buffer(1000)
        self.handle = library().llg_new_tokenizer_v2(ctypes.byref(init), reason, len(reason))
        assert self.handle, reason.value.decode()
        weakref.finalize(self, library().llg_free_tokenizer, self.handle).atexit = False


class NativeMatcher:
    """A matcher of the C interface; freed with this object."""

    __slots__ = ("__weakref__", "_free", "handle")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._free = weakref.finalize(self, library().llg_free_matcher, handle)
        self._free.atexit = False

    @property
    def is_freed(self) -> bool:
        """Whether what it stands for is gone: to be used no more."""
        return not self._free.alive

    def copy(self) -> NativeMatcher:
        """One that shares nothing with this."""
        return NativeMatcher(library().llg_clone_matcher(self.handle))

    def check(self) -> None:
        """Raise MatcherFailed if the library has given up."""
        if library().llg_matcher_is_error(self.handle):
            raise MatcherFailed(library().llg_matcher_get_error(self.handle).decode())

    def reset(self) -> None:
        """Back to the start of the text."""
        library().llg_matcher_reset(self.handle)
        self.check()

    def fill(self, row: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Write the allowed next tokens."""
        library().llg_matcher_compute_mask_into(self.handle, row.ctypes.data, row.nbytes)
        self.check()

    def take(self, token_id: int) -> None:
        """Advance by a token that a row allowed."""
        library().llg_matcher_consume_token(self.handle, token_id)
        self.check()


def new_matcher(tokenizer: NativeTokenizer, grammar: str, limits: Any) -> NativeMatcher:
    """A matcher of a grammar that the Python interface takes; `limits` are an LLParserLimits."""
    init = _GrammarInit()
    library().llg_constraint_init_set_defaults(ctypes.byref(init), tokenizer.handle)
    init.log_buffer_level = init.log_stderr_level = 0
    for name, _ in _Limits._fields_:
        setattr(init.limits, name, getattr(limits, name))
    handle = library().llg_new_matcher(ctypes.byref(init), b"guidance", grammar.encode())
    matcher = NativeMatcher(handle)
    matcher.check()
    return matcher
