"""Rows of the bitmask: which logits row belongs to whom, which bit to which token."""

from __future__ import annotations

import numpy as np

from structspec.bitmask import allocate_bitmask, first_logits_rows, unpack_row


def test_each_sampled_request_has_a_row_per_draft_and_a_bonus_row():
    # drafts `a b`, `x` and none: the picture in structspec/bitmask.py
    assert first_logits_rows([2, 1, 0], [True, True, True]) == [0, 3, 5]


def test_unsampled_requests_take_no_rows():
    assert first_logits_rows([2, 0, 1], [True, False, True]) == [0, 3, 3]
    assert first_logits_rows([], []) == []


def test_token_v_is_bit_v_mod_32_of_word_v_div_32():
    bitmask = allocate_bitmask(2, 70)
    assert bitmask.shape == (2, 3)
    bitmask[1].view(np.uint32)[:] = [1 << 31, 0, 1 << 5]
    assert np.flatnonzero(unpack_row(bitmask[1], 70)).tolist() == [31, 69]
    assert not unpack_row(bitmask[0], 70).any()
