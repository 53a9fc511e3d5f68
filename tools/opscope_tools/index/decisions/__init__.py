"""Where it is decided what runs: the config fields that choices hang on, and the lines that decide their values."""
