"""Random numbers by counting: what a token draws hangs on a seed, a position and its id alone.

    r[v]      = word v % 4 of Philox 4x32-10, key: seed, counter: (v // 4, draw, draw >> 32, 0)
    u[v]      = (r[v] + 1/2) / 2^32                   never 0, and held below 1
    gumbel[v] = -log(-log(1 - u[v]))

(Philox: Salmon et al., SC 2011.) The largest gumbel of a vocabulary comes from a u near 0, where
float32 has digits to spare: near 1 it would have 24 bits, too few for rare tokens.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOW = 0xFFFFFFFF  # the low 32 bits
_LARGEST_U = 1 - 2.0**-24
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox_reference(counter: list[Tensor], key: list[Tensor]) -> list[Tensor]:
    """Philox 4x32-10: four words of counter and two of key give four, all uint32 in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low, high = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]  # modulo 2^64, signed or not
        c0, c2 = (high >> 32 & _LOW) ^ c1 ^ k0, (low >> 32 & _LOW) ^ c3 ^ k1
        c1, c3 = high & _LOW, low & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return [c0, c1, c2, c3]


def gumbel_reference(seeds: Tensor, draws: Tensor, vocab_size: int) -> Tensor:
    """Gumbel noise [num_rows, vocab_size] float32; seeds and draws [num_rows] int64."""
    quads = torch.arange((vocab_size + 3) // 4, device=seeds.device)
    words = [draws & _LOW, draws >> 32 & _LOW, torch.zeros_like(draws)]
    key = [(seeds & _LOW)[:, None], (seeds >> 32 & _LOW)[:, None]]
    drawn = philox_reference([quads, *(word[:, None] for word in words)], key)
    bits = torch.stack(drawn, dim=-1).flatten(1)[:, :vocab_size]
    u = ((bits.float() + 0.5) * 2.0**-32).clamp(max=_LARGEST_U)
    return -(-torch.log1p(-u)).log()


@triton.jit  # type: ignore[untyped-decorator]
def gumbel(seed: tl.tensor, draw: tl.tensor, quads: tl.tensor) -> tl.tensor:
    """Gumbel noise of the four tokens 4 q … 4 q + 3 for each of the block `quads` (int32)."""
    q = quads.to(tl.uint32)
    low, high = (draw & 0xFFFFFFFF).to(tl.uint32), (draw >> 32).to(tl.uint32)
    r0, r1, r2, r3 = tl.philox(seed, q, q * 0 + low, q * 0 + high, q * 0)
    bits = tl.interleave(tl.interleave(r0, r2), tl.interleave(r1, r3))
    u = tl.minimum((bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.999999940395355)
    # -log(1 - u) by its series where a logarithm near 1 would lose the digits.
    series = u * (1.0 + u * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5)))))
    return -tl.log(tl.where(u < 0.0625, series, -tl.log(1.0 - u)))
