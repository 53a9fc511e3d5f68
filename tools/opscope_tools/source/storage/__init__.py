"""Rows on disk: where they lie, what a file comes to, and how a damaged file is found out."""
