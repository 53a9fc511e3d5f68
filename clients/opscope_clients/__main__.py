"""`python -m opscope_clients`: the command line, where the console script is not installed."""

import os
import sys

# `-m` puts the current folder there, which may be anybody's; nothing else may be imported before it is gone
if sys.path[0] == os.getcwd() and not os.path.isdir(__package__):  # noqa: PTH109, PTH112
    del sys.path[0]

from opscope_clients.entry import main

if __name__ == "__main__":
    main()
