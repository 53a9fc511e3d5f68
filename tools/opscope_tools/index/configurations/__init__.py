"""The parameters of a configuration, what its constructor does, and the constants of a file."""
