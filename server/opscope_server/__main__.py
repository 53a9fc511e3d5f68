"""`python -m opscope_server`: the server over stdio, or over HTTP with --http."""

import os
import sys

# `-m` puts the current folder there, which may be anybody's; nothing else may be imported before it is gone
if sys.path[0] == os.getcwd() and not os.path.isdir(__package__):  # noqa: PTH109, PTH112
    del sys.path[0]

from opscope_server.launch import main

if __name__ == "__main__":
    main()
