import wires

from relay.back.hands import Hands


class Far:
    def exposed_ahead(self, group, fresh):
        return self.hands.ahead(group, fresh)

    def exposed_begin(self, weights):
        self.hands = Hands(weights)


class Remote:
    def __init__(self, far, several):
        self.far = far
        self._ahead = wires.later(self.far.ahead) if several else self.far.exposed_ahead

    async def ahead(self, group, fresh):
        return self._ahead(group, fresh)


def open_remote(number):
    return Remote(Far(), number > 0)
