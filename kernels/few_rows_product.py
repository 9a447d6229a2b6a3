"""What the kernels of few rows share: some rows of a weight times all rows of x.

The weight is the left factor, so that its tile goes from shared memory to the tensor core as it
lies, whatever few rows x has:

    acc[n, m] = sum_k weight[n, k] * x[m, k] * norm[k];   squares[m] = sum_k x[m, k]^2
    product   = acc / sqrt(squares / K + eps)             the norm's scale, after the sum

With an OVERLAP (programmatic dependent launch, compute capability 9.0) a kernel may start before
the one ahead has ended: its programs have their first weights brought to the L2 cache, then wait.
An "early" one lets the next kernel start right then, a "late" one when its sums are done: programs
that wait crowd onto the processors with room left, which costs more than it gains where all have
long work to do.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def wait_for_inputs(
    weight_ptr: tl.tensor,
    rows: tl.tensor,
    first_k: tl.tensor,
    K: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """Until the kernel ahead has written everything; the weights don't depend on it."""
    if OVERLAP != "":
        LINE: tl.constexpr = 1024 // weight_ptr.dtype.element_ty.primitive_bitwidth
        LINES: tl.constexpr = (2 * BLOCK_K + LINE - 1) // LINE  # of two tiles
        k = tl.minimum(first_k + tl.arange(0, LINES) * LINE, K - 1)
        lines = weight_ptr + rows.to(tl.int64)[:, None] * K + k[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
            "=r,l",
            [lines.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
        tl.extra.cuda.gdc_wait()
    if OVERLAP == "early":
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit  # type: ignore[untyped-decorator]
def let_next_start(OVERLAP: tl.constexpr) -> None:
    """To be called when the sums are done."""
    if OVERLAP == "late":
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit  # type: ignore[untyped-decorator]
def product(
    x_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    rows: tl.tensor,
    first_m: tl.tensor,
    first_k: tl.tensor,
    num_rows: tl.tensor,
    K: tl.constexpr,
    SPAN: tl.constexpr,
    HAS_NORM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
) -> tl.tensor:
    """`acc` [BLOCK_N, BLOCK_M] and `squares` [BLOCK_M] over SPAN numbers from first_k on.

    Both are of the BLOCK_M rows of x from first_m on.
    """
    i = tl.arange(0, BLOCK_K)
    x_ptr += first_m.to(tl.int64) * K
    weight_rows = weight_ptr + rows.to(tl.int64)[:, None] * K
    if BLOCK_M == 1:
        products = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
        x_squares = tl.zeros((BLOCK_K,), tl.float32)
        for start in tl.range(0, SPAN, BLOCK_K, num_stages=NUM_STAGES):
            k = first_k + start + i
            weight = tl.load(
                weight_rows + k[None, :],
                mask=(k < K)[None, :],
                other=0.0,
                eviction_policy="evict_first",
            )
            x = tl.load(x_ptr + k, mask=k < K, other=0.0).to(tl.float32)
            if HAS_NORM:
                x_squares += x * x
                x *= tl.load(norm_ptr + k, mask=k < K, other=0.0).to(tl.float32)
            products += weight.to(tl.float32) * x[None, :]
        acc = tl.sum(products, 1)[:, None]
        squares = tl.sum(x_squares[None, :], 1)
    else:
        m = tl.arange(0, BLOCK_M)
        acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
        x_squares = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)  # summed once, behind the loop
        for start in tl.range(0, SPAN, BLOCK_K, num_stages=NUM_STAGES):
            k = first_k + start + i
            weight = tl.load(
                weight_rows + k[None, :],
                mask=(k < K)[None, :],
                other=0.0,
                eviction_policy="evict_first",
            )
            x = tl.load(
                x_ptr + m[:, None] * K + k[None, :],
                mask=(first_m + m < num_rows)[:, None] & (k < K)[None, :],
                other=0.0,
            )
            if HAS_NORM:
                # once a row, as wide as x: one row of it would be too narrow to be fetched ahead
                norm = tl.load(
                    norm_ptr + m[:, None] * 0 + k[None, :],
                    mask=(m >= 0)[:, None] & (k < K)[None, :],
                    other=0.0,
                )
                wide = x.to(tl.float32)
                x_squares += wide * wide
                x = (wide * norm.to(tl.float32)).to(x.dtype)
            acc = tl.dot(weight, tl.trans(x), acc, input_precision="ieee")
        squares = tl.sum(x_squares, 1)
    return acc, squares


@triton.jit  # type: ignore[untyped-decorator]
def halves(acc: tl.tensor, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr) -> tl.tensor:
    """The first and the second half of the rows, [BLOCK_N / 2, BLOCK_M] each."""
    return tl.split(acc.reshape(2, BLOCK_N // 2, BLOCK_M).permute(1, 2, 0))
