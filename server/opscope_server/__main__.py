"""`python -m opscope_server`: the server over stdio, or over HTTP with --http."""

from opscope_server.launch import main

if __name__ == "__main__":
    main()
