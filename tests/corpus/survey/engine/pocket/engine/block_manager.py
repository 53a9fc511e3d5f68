class BlockManager:
    """Blocks of the KV cache: which are free, which sequence holds which."""

    def __init__(self, num_kvcache_blocks, block_size):
        self.block_size = block_size
        self.free_block_ids = list(range(num_kvcache_blocks))

    def can_allocate(self, seq):
        return len(self.free_block_ids) >= 1

    def allocate(self, seq):
        seq["block_table"].append(self.free_block_ids.pop())

    def can_append(self, seq):
        return len(self.free_block_ids) >= 1

    def deallocate(self, seq):
        self.free_block_ids += seq["block_table"]
        seq["block_table"] = []
