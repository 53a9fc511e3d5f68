import torch

from relay.back.shelf import Shelf


class Floor:
    def __init__(self, number, shelf):
        self.number, self.shelf = number, shelf

    def through(self, x, where):
        q, k, v = self.split(x)
        self.shelf.put(self.number, where, k, v)
        attn = torch.matmul(q, k.transpose(-1, -2))
        return torch.matmul(torch.softmax(attn, dim=-1), v)


class Net:
    def __init__(self, weights):
        self.shelf = Shelf(4096, 8, 64, 12)
        self.floors = [Floor(number, self.shelf) for number in range(12)]
        self.layer_count = 12

    def forward(self, tokens, where):
        x = self.embed(tokens)
        for number in range(self.layer_count):
            x = self.floors[number].through(x, where)
        return self.head(x)
