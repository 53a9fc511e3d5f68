import torch


def narrowed(logits, most):
    best, _ = torch.topk(logits, most)
    return logits.masked_fill(logits < best[..., -1:], -float("inf"))


def pick(logits, warmth):
    if warmth == 0:
        return torch.argmax(logits, dim=-1)
    probs = torch.softmax(narrowed(logits / warmth, 50), dim=-1)
    return torch.multinomial(probs, num_samples=1)


def accuracy(logits, labels):
    return (torch.argmax(logits, dim=-1) == labels).mean()
