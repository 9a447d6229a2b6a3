"""Where a filtered row's limits fall, as nearly as one more read of its logits tells.

    key(v)  = the bits of z[v], a float32 >= 0: they are ordered as z is (sample_rows_filters.py)
    bin(v)  = its exponent and 7 bits of its mantissa: 128 bins from z = 2^n to 2^(n+1), n = -9 … 6
    mass(v) = floor(2^44 w[v])                       an integer: sums do not hang on their order

First, `bound_row_kernel` looks at the maxima of groups of tokens alone: min_p's limit is known
with the best; where k groups reach a z, the k-th smallest z lies there at the latest; and what
lies behind z = log(vocab_size / (1 - top_p)) adds up to less than top-p may leave out. Then
`count_kernel` reads the logits and counts the tokens of each bin (top-k) and adds their masses
(top-p). Last, `find_bins_kernel` finds the bins in which the limits lie: one for top-k and, since
the mass left by top-k is known up to that bin's only, one or a few for top-p.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.sample_rows_filters import is_filtered
from structspec.kernels.sample_rows_scores import NO_SCORE, allowed_scores

NUM_BINS = tl.constexpr(2048)
_FIRST_BIN = tl.constexpr((127 - 9) << 7)  # z = 2^-9; all that is smaller is in that bin too
_LARGEST_KEY = tl.constexpr(0x7F7FFFFF)  # of finite z
NO_KEY = tl.constexpr(0x7F800000)  # of what is forbidden
_MASS_OF_BEST = tl.constexpr(2.0**44)  # 2^18 tokens of it add up to 2^62

# What is known of a row, int64 each.
PLAN_SIZE = tl.constexpr(9)
LIMIT = tl.constexpr(0)  # keys beyond it are dropped
TAIL = tl.constexpr(1)  # keys beyond it are not top-p's limit
K_BIN = tl.constexpr(2)  # where top-k's limit lies; NUM_BINS: nowhere
K_LEFT = tl.constexpr(3)  # how many tokens it leaves of that bin
K_MASS = tl.constexpr(4)  # of the bins before
K_BIN_MASS = tl.constexpr(5)
P_FIRST = tl.constexpr(6)  # the bins where top-p's limit lies; NUM_BINS: nowhere
P_LAST = tl.constexpr(7)
P_MASS = tl.constexpr(8)  # of the bins before P_FIRST


@triton.jit  # type: ignore[untyped-decorator]
def keys_of(scores: tl.tensor, best: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """int32."""
    z = tl.where(scores == best, 0.0, tl.div_rn(best - scores, temperature))
    return tl.where(scores == NO_SCORE, NO_KEY, z.to(tl.int32, bitcast=True))


@triton.jit  # type: ignore[untyped-decorator]
def masses_of(keys: tl.tensor) -> tl.tensor:
    """int64."""
    return (tl.exp(-keys.to(tl.float32, bitcast=True)) * _MASS_OF_BEST).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def bins_of(keys: tl.tensor) -> tl.tensor:
    """int32; the last bin has all that weighs nothing."""
    return tl.minimum(tl.maximum((keys >> 16) - _FIRST_BIN, 0), NUM_BINS - 1)


@triton.jit  # type: ignore[untyped-decorator]
def first_key(bin_id: tl.tensor) -> tl.tensor:
    """The smallest key of a bin; that of the bin behind, less 1, is its largest."""
    return tl.where(bin_id == 0, 0, (bin_id + _FIRST_BIN) << 16)


@triton.jit  # type: ignore[untyped-decorator]
def wanted_mass(total: tl.tensor, top_p: tl.tensor) -> tl.tensor:
    """The mass that top-p must reach, at least the smallest there is."""
    return tl.maximum((total.to(tl.float64) * top_p.to(tl.float64)).to(tl.int64), 1)


@triton.jit(do_not_specialize=["num_groups"])  # type: ignore[untyped-decorator]
def bound_row_kernel(
    group_maxima_ptr: tl.tensor,
    temperature_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    maxima_ptr: tl.tensor,
    plan_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    masses_ptr: tl.tensor,
    list_sizes_ptr: tl.tensor,
    vocab_size: tl.tensor,
    num_groups: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    """The row's best, LIMIT and TAIL; makes its bins and its list empty."""
    row = tl.program_id(0).to(tl.int64)
    if not is_filtered(row, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr):
        return
    temperature, top_k = tl.load(temperature_ptr + row), tl.load(top_k_ptr + row)
    top_p, min_p = tl.load(top_p_ptr + row), tl.load(min_p_ptr + row)
    groups = tl.arange(0, BLOCK_SIZE)
    maxima = tl.load(
        group_maxima_ptr + row * num_groups + groups, mask=groups < num_groups, other=NO_SCORE
    )
    best = tl.max(maxima, 0)
    best = tl.where(best == NO_SCORE, 0.0, best)  # all is forbidden: any number will do
    limit = tl.full((), _LARGEST_KEY, tl.int32)
    if min_p > 0:
        z = tl.abs(tl.log(min_p.to(tl.float64))).to(tl.float32)  # a limit of -0 has no such key
        limit = tl.minimum(limit, z.to(tl.int32, bitcast=True))
    if (top_k > 0) & (top_k <= num_groups):
        ordered = tl.sort(maxima, descending=True)
        kth = tl.sum(tl.where(groups == top_k - 1, ordered, 0.0), 0)
        limit = tl.minimum(limit, keys_of(kth, best, temperature))
    tail = tl.full((), _LARGEST_KEY, tl.int32)
    if (top_p < 1) & (top_k == 0):
        z = tl.log(vocab_size / (1.0 - top_p)) + 1.0  # + 1: room for rounding
        tail = z.to(tl.int32, bitcast=True)
    tl.store(maxima_ptr + row, best)
    tl.store(plan_ptr + row * PLAN_SIZE + LIMIT, limit)
    tl.store(plan_ptr + row * PLAN_SIZE + TAIL, tail)
    bins = row * NUM_BINS + tl.arange(0, NUM_BINS)
    tl.store(counts_ptr + bins, 0)
    tl.store(masses_ptr + bins, 0)
    tl.store(list_sizes_ptr + row, 0)


@triton.jit  # type: ignore[untyped-decorator]
def count_kernel(
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_ptr: tl.tensor,
    bitmask_stride: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    num_stops: tl.tensor,
    bans_stops_ptr: tl.tensor,
    vocab_size: tl.tensor,
    temperature_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    maxima_ptr: tl.tensor,
    plan_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    masses_ptr: tl.tensor,
    PART_SIZE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + row)
    has_k, has_p = tl.load(top_k_ptr + row) > 0, tl.load(top_p_ptr + row) < 1
    if not ((has_k | has_p) & (temperature > 0)):
        return
    best = tl.load(maxima_ptr + row)
    limit = tl.load(plan_ptr + row * PLAN_SIZE + LIMIT)
    tail = tl.load(plan_ptr + row * PLAN_SIZE + TAIL)
    tail_mass = tl.full((), 0, tl.int64)
    for part in range(tl.program_id(1), tl.cdiv(vocab_size, PART_SIZE), tl.num_programs(1)):
        word_ids = part * (PART_SIZE // 32) + tl.arange(0, PART_SIZE // 32)
        scores = allowed_scores(
            row, word_ids, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
            stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
        )  # fmt: skip
        keys = keys_of(scores, best, temperature)
        places, is_left = row * NUM_BINS + bins_of(keys), keys <= limit
        if has_k:
            tl.atomic_add(counts_ptr + places, 1, mask=is_left, sem="relaxed")
        if has_p:
            masses, is_tail = masses_of(keys), keys > tail
            tl.atomic_add(masses_ptr + places, masses, mask=is_left & ~is_tail, sem="relaxed")
            tail_mass += tl.sum(tl.where(is_left & is_tail, masses, 0))
    if tail_mass > 0:
        tl.atomic_add(masses_ptr + row * NUM_BINS + NUM_BINS - 1, tail_mass, sem="relaxed")


@triton.jit  # type: ignore[untyped-decorator]
def find_bins_kernel(
    temperature_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    plan_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    masses_ptr: tl.tensor,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    if not is_filtered(row, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr):
        return
    plan_ptr += row * PLAN_SIZE
    top_k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row)
    bins = tl.arange(0, NUM_BINS)
    masses = tl.load(masses_ptr + row * NUM_BINS + bins)
    total = tl.sum(masses, 0)
    k_bin, k_left = tl.full((), NUM_BINS, tl.int32), tl.full((), 0, tl.int32)
    k_mass, k_bin_mass = total, tl.full((), 0, tl.int64)
    if top_k > 0:
        counts = tl.load(counts_ptr + row * NUM_BINS + bins)
        found = tl.sum((tl.cumsum(counts, 0) < top_k).to(tl.int32), 0)
        if found < NUM_BINS - 1:
            k_bin = found
            k_left = top_k - tl.sum(tl.where(bins < found, counts, 0), 0)
            k_mass = tl.sum(tl.where(bins < found, masses, 0), 0)
            k_bin_mass = tl.sum(tl.where(bins == found, masses, 0), 0)
    tl.store(plan_ptr + K_BIN, k_bin)
    tl.store(plan_ptr + K_LEFT, k_left)
    tl.store(plan_ptr + K_MASS, k_mass)
    tl.store(plan_ptr + K_BIN_MASS, k_bin_mass)
    p_first, p_last = tl.full((), NUM_BINS, tl.int32), tl.full((), NUM_BINS, tl.int32)
    p_mass = tl.full((), 0, tl.int64)
    if top_p < 1:
        reached = tl.cumsum(masses, 0)
        p_first = tl.sum((reached < wanted_mass(k_mass, top_p)).to(tl.int32), 0)
        p_last = tl.sum((reached < wanted_mass(k_mass + k_bin_mass, top_p)).to(tl.int32), 0)
        p_mass = tl.sum(tl.where(bins < p_first, masses, 0), 0)
    tl.store(plan_ptr + P_FIRST, p_first)
    tl.store(plan_ptr + P_LAST, p_last)
    tl.store(plan_ptr + P_MASS, p_mass)
