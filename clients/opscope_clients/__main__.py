"""`python -m opscope_clients`: the command line, where the console script is not installed."""

from opscope_clients.entry import main

if __name__ == "__main__":
    main()
