"""Time from starting a server over stdio to its first listing of tools: opscope beside a bare server of the SDK.

opscope is started as hosts start it. Both are measured in one run, alternating, so that the machine's load falls on both; medians and their ratio are
printed, and the exit status tells whether the ratio stays within what the project promises.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

RUNS = 9
PROMISE = 1.2
BARE = """
from mcp.server import MCPServer
server = MCPServer("bare")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run("stdio")
"""


async def first_listing(arguments: list[str]) -> float:
    """Seconds until the first tools/list has been answered."""
    begun = time.perf_counter()
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        await client.list_tools()
        return time.perf_counter() - begun


async def measure() -> dict[str, list[float]]:
    """Alternating measurements of both, after one of each to warm the file cache."""
    servers = {"bare SDK server": ["-c", BARE], "opscope": [str(Path(sys.executable).with_name("opscope")), "serve"]}
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    for run in range(RUNS + 1):
        for name, arguments in servers.items():
            taken = await first_listing(arguments)
            if run:
                seconds[name].append(taken)
    return seconds


def main() -> int:
    """Print the table; 1 where the promise is broken."""
    medians = {}
    for name, taken in anyio.run(measure).items():
        medians[name] = statistics.median(taken)
        print(f"{name:16} median {medians[name]:.3f} s, {min(taken):.3f} to {max(taken):.3f}, {len(taken)} runs")
    ratio = medians["opscope"] / medians["bare SDK server"]
    print(f"ratio {ratio:.2f} (promised: at most {PROMISE})")
    return 0 if ratio <= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
