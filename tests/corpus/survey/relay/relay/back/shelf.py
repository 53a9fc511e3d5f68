import torch


class Shelf:
    """Room for what was read: as many places as fit, one row for each token."""

    def __init__(self, places, head_num, head_dim, layer_num):
        self.free_places = torch.ones((places,), dtype=torch.bool)
        self.kv_buffer = [torch.empty((places, 2 * head_num, head_dim)) for _ in range(layer_num)]

    def take(self, needed):
        return torch.nonzero(self.free_places)[:needed]

    def put(self, layer, places, keys, values):
        self.kv_buffer[layer][places, :] = torch.cat([keys, values], dim=1)


class Frame:
    """Holds no keys and values: a mask, and the ids of what is asked."""

    def __init__(self, batch, heads, length, head_dim):
        self.attention_mask = torch.zeros((batch, heads, length, length))
        self.input_ids = torch.zeros((batch, length), dtype=torch.long)
        self.kv_mask = torch.ones((batch, heads, length, head_dim))
