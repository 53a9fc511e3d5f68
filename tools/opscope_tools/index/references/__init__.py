"""Who uses a definition, and what a file shows to the outside."""
