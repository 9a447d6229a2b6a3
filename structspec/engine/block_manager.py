"""Which KV-cache blocks belong to which requests, and which hold text that may come again."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from structspec.request import Request


class BlockManager:
    """Hands out fixed-size KV blocks; every block is free or in the tables of some requests.

    A full block of computed tokens is known by a hash of all tokens up to its end, and keeps that
    name when it is freed: a request that begins with those tokens takes it instead of computing
    them, until a block is needed and the one unused the longest is given away. Used by the
    scheduler alone. Rejected positions need no work on the cache itself: they are overwritten, and
    `trim` gives back the blocks that only they used.
    """

    def __init__(self, num_blocks: int, block_size: int, *, keeps_prefixes: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._keeps_prefixes = keeps_prefixes
        self._free = OrderedDict.fromkeys(range(num_blocks))  # the first to be given away first
        self._num_users = [0] * num_blocks
        self._digests: dict[int, bytes] = {}  # of blocks whose text is known
        self._blocks: dict[bytes, int] = {}  # the same the other way round

    @property
    def num_free_blocks(self) -> int:
        """How many blocks no request has."""
        return len(self._free)

    def reuse(self, request: Request) -> int:
        """Give a request without blocks those that hold its beginning; how many tokens that are.

        At least one token is left to be computed: its logits are needed.
        """
        assert not request.block_table
        if self._keeps_prefixes and not request.needs_prompt_rows:
            for digest in self._digests_of(request, len(request.token_ids) - 1):
                block_id = self._blocks.get(digest)
                if block_id is None:
                    break
                self._free.pop(block_id, None)
                self._num_users[block_id] += 1
                request.block_table.append(block_id)
        return len(request.block_table) * self.block_size

    def has_beginning(self, request: Request) -> bool:
        """Whether all of a request's prompt that others might reuse can be reused by now."""
        num_blocks = (request.num_prompt_tokens - 1) // self.block_size
        return not self._keeps_prefixes or request.num_kept_blocks >= num_blocks

    def keep(self, request: Request, num_tokens: int) -> None:
        """Remember the text of a request's full blocks among its first computed tokens."""
        num_blocks = num_tokens // self.block_size
        if not self._keeps_prefixes or num_blocks <= request.num_kept_blocks:
            return
        num_tokens = min(num_tokens, len(request.token_ids))
        request.num_kept_blocks = num_tokens // self.block_size
        digests = self._digests_of(request, num_tokens)
        for block_id, digest in zip(request.block_table, digests, strict=False):
            if digest not in self._blocks and block_id not in self._digests:
                self._blocks[digest] = block_id
                self._digests[block_id] = digest

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Make room for positions below `num_tokens`; False changes nothing."""
        if num_tokens <= len(request.block_table) * self.block_size:
            return True
        num_missing = self._num_blocks_for(num_tokens) - len(request.block_table)
        if num_missing > len(self._free):
            return False
        for _ in range(num_missing):
            request.block_table.append(self._take())
        return True

    def num_available_tokens(self, request: Request) -> int:
        """How many positions `request` could have at most, with every free block."""
        return (len(request.block_table) + len(self._free)) * self.block_size

    def trim(self, request: Request, num_tokens: int) -> None:
        """Take back the blocks behind position `num_tokens`."""
        while len(request.block_table) > self._num_blocks_for(num_tokens):
            self._release(request.block_table.pop())
        num_left = len(request.block_table)
        request.num_sent_blocks = min(request.num_sent_blocks, num_left)
        request.num_kept_blocks = min(request.num_kept_blocks, num_left)

    def free(self, request: Request) -> None:
        """Take back all blocks of `request`, its last first: a beginning is of use for longer."""
        self.trim(request, 0)

    def _take(self) -> int:
        """The free block that is missed the least."""
        block_id, _ = self._free.popitem(last=False)
        digest = self._digests.pop(block_id, None)
        if digest is not None:
            del self._blocks[digest]
        self._num_users[block_id] = 1
        return block_id

    def _release(self, block_id: int) -> None:
        self._num_users[block_id] -= 1
        if self._num_users[block_id] == 0:
            self._free[block_id] = None
            if block_id not in self._digests:  # nothing in it can be used again
                self._free.move_to_end(block_id, last=False)

    def _digests_of(self, request: Request, num_tokens: int) -> Sequence[bytes]:
        """The hashes of the full blocks among the first tokens of a request."""
        digests = request.block_digests
        num_blocks = num_tokens // self.block_size
        while len(digests) < num_blocks:
            start = len(digests) * self.block_size
            tokens = array("q", request.token_ids[start : start + self.block_size])
            before = digests[-1] if digests else b""
            digests.append(hashlib.sha256(before + tokens.tobytes()).digest())
        return digests[:num_blocks]

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
