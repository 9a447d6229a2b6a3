"""vLLM 0.26.0 on the same workload and kind of card: the figures that ours stand beside.

Greedy, bfloat16, 256 tokens, CUDA graphs and torch.compile on, xgrammar 0.2.7 and llguidance 1.7.6;
tokens per second at 1, 8, 32 and 128 requests at once, None where it was not run.
"""

from __future__ import annotations

SIZES = (1, 8, 32, 128)
Row = tuple[int | None, ...]

LARGE: dict[str, dict[str, Row]] = {
    "plain": {"": (199, 1554, 5579, 16913)},
    "same": {"xgrammar": (198, 1544, 5370, 10694), "llguidance": (198, 1526, 5238, 11489)},
    "pool": {"xgrammar": (198, 1543, 5332, 13531), "llguidance": (197, 1486, 5408, 14563)},
    "fresh": {"xgrammar": (196, 1526, 5126, 12265), "llguidance": (198, 1526, 5411, 12983)},
    "regex": {"xgrammar": (188, 856, 1435, 1862), "llguidance": (187, 836, 1031, 1343)},
}
SMALL: dict[str, dict[str, Row]] = {
    "plain": {"": (455, 2589, 9059, 30866)},
    "same": {"xgrammar": (332, 1009, 1474, 1681), "llguidance": (479, 2396, 5541, 6669)},
    "pool": {"xgrammar": (282, 1435, 1806, None), "llguidance": (439, 2739, 5441, 6564)},
    "fresh": {"xgrammar": (262, 1049, 1777, None), "llguidance": (461, 2886, 5542, 6244)},
}
SMALL_COPY_DRAFTS: Row = (959, 4942, 8586, 12960)  # n-grams, k = 4, xgrammar

# time to the first token at one request, ms: no grammar, a renamed property, the same again
FIRST_TOKEN = {
    "large": {"xgrammar": (19, 36, 19), "llguidance": (19, 23, 22)},
    "small": {"xgrammar": (10.5, 24, 17), "llguidance": (9, 14, 12)},
}
START_UP_LARGE_S = 27
