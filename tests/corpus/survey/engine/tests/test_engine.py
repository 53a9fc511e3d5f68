import os


class FakeScheduler:
    def schedule(self):
        return os.environ.get("POCKET_TEST_ONLY")
