"""The tool `compare`: sides of one question beside each other, matched down to operators and lines."""
