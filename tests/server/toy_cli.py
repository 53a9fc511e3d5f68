"""The real command line with the toy tools added, as a process."""

from __future__ import annotations

from opscope_clients.cli import main, opscope
from opscope_clients.commands import tool_command
from toys import TOYS

for toy in TOYS:
    opscope.add_command(tool_command(toy))

if __name__ == "__main__":
    main()
