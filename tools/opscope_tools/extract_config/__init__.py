"""The tool `extract_config`: hyperparameters, kernel settings, constraints and assertions, each with its line."""
