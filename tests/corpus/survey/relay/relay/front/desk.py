import asyncio

from relay.back.remote import open_remote
from relay.front.line import Line, ShortLine


class Desk:
    def __init__(self, chosen):
        self.line = ShortLine(chosen) if chosen.line_length else Line(chosen)
        self.remotes = [open_remote(n) for n in range(chosen.workers)]
        self.current = None

    async def turn_forever(self):
        """Turn after turn, for as long as the process lives."""
        while True:
            await self._turn()
            if self.current is None:
                await asyncio.sleep(0.01)

    async def _turn(self):
        if self.current is None:
            fresh = self.line.compose(self.current)
            if fresh is not None:
                self.current = fresh
                await self._ahead(fresh, True)
            return
        await self._ahead(self.current, False)

    async def _ahead(self, group, fresh):
        answers = [self.remotes[n].ahead(group, fresh) for n in range(len(self.remotes))]
        for person, token in (await asyncio.gather(*answers))[0]:
            person.tokens.append(token)
