"""Building the index of a whole repository, in processes of its own and behind the answers."""
