import argparse
import asyncio
import os

from relay.front.desk import Desk

PREFIX = "RELAY_"
PORT_NAME = PREFIX + "PORT"
FLAG = "--" + "line-length"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights")
    parser.add_argument("--port", default=os.environ.get(PORT_NAME, 8000))
    parser.add_argument("--most-tokens", type=int, default=4096)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument(FLAG, type=int)
    parser.add_argument("--workers", type=int, default=1)
    chosen = parser.parse_args()
    desk = Desk(chosen)
    opened(desk).run(port=chosen.port)


def opened(desk):
    from elsewhere import House

    house = House()
    house.before(lambda: asyncio.create_task(desk.turn_forever()))
    return house
