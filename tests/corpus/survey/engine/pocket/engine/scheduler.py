from abc import ABC, abstractmethod
from collections import deque

from pocket.engine.block_manager import BlockManager


class SchedulerInterface(ABC):
    @abstractmethod
    def schedule(self): ...

    @abstractmethod
    def postprocess(self, seqs, token_ids): ...


class Scheduler(SchedulerInterface):
    """Prefill first, then decode; preempts where blocks run out."""

    def __init__(self, args):
        self.max_num_seqs = args.max_seqs
        self.block_manager = BlockManager(8, args.block_size)
        self.waiting = deque()
        self.running = deque()

    def add(self, tokens, params):
        self.waiting.append({"tokens": list(tokens), "left": params.max_tokens, "block_table": []})

    def is_finished(self):
        return not self.waiting and not self.running

    def schedule(self):
        scheduled = []
        while self.waiting and len(scheduled) < self.max_num_seqs:
            seq = self.waiting[0]
            if not self.block_manager.can_allocate(seq):
                break
            self.block_manager.allocate(seq)
            self.running.append(self.waiting.popleft())
            scheduled.append(seq)
        if scheduled:
            return scheduled, True
        for seq in list(self.running):
            while not self.block_manager.can_append(seq):
                self.preempt(self.running.pop())
            scheduled.append(seq)
        return scheduled, False

    def preempt(self, seq):
        self.block_manager.deallocate(seq)
        self.waiting.appendleft(seq)

    def postprocess(self, seqs, token_ids):
        for seq, token in zip(seqs, token_ids):
            seq["tokens"].append(token)
            seq["left"] -= 1
            if seq["left"] == 0:
                self.block_manager.deallocate(seq)
                self.running.remove(seq)
