"""Which KV-cache blocks belong to which request."""

from __future__ import annotations

from structspec.request import Request


class BlockManager:
    """Hands out fixed-size KV blocks; every block is either free or in exactly one block table.

    Used by the scheduler alone. Rejected positions need no work on the cache itself: they are
    overwritten, and `trim` gives back the blocks that only they used.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free_block_ids = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free_blocks(self) -> int:
        """How many blocks belong to nobody."""
        return len(self._free_block_ids)

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Make room for positions below `num_tokens`; False changes nothing."""
        num_missing = self._num_blocks_for(num_tokens) - len(request.block_table)
        if num_missing > len(self._free_block_ids):
            return False
        for _ in range(num_missing):
            request.block_table.append(self._free_block_ids.pop())
        return True

    def num_available_tokens(self, request: Request) -> int:
        """How many positions `request` could have at most, with every free block."""
        return (len(request.block_table) + len(self._free_block_ids)) * self.block_size

    def trim(self, request: Request, num_tokens: int) -> None:
        """Take back the blocks behind position `num_tokens`."""
        while len(request.block_table) > self._num_blocks_for(num_tokens):
            self._free_block_ids.append(request.block_table.pop())

    def free(self, request: Request) -> None:
        """Take back all blocks of `request`."""
        self.trim(request, 0)

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
