from pocket.config import EngineArgs
from pocket.engine.model_runner import ModelRunner
from pocket.engine.scheduler import Scheduler, SchedulerInterface
from pocket.sampling_params import SamplingParams


class LLMEngine:
    """Runs requests until all are finished."""

    def __init__(self, args: EngineArgs):
        self.scheduler: SchedulerInterface = Scheduler(args)
        self.model_runner = ModelRunner(args)
        self.step_fn = self.step if args.max_seqs > 0 else self.step_overlapped

    def add_request(self, tokens, params: SamplingParams):
        self.scheduler.add(tokens, params)

    def is_finished(self):
        return self.scheduler.is_finished()

    def step(self):
        seqs, is_prefill = self.scheduler.schedule()
        token_ids = self.model_runner.call("run", seqs, is_prefill)
        self.scheduler.postprocess(seqs, token_ids)
        return seqs

    def step_overlapped(self):
        return []

    def generate(self, prompts, params: SamplingParams):
        for prompt in prompts:
            self.add_request(prompt, params)
        done = []
        while not self.is_finished():
            done = self.step_fn()
        else:
            self.log()
        return done

    def log(self):
        print("done")
