"""The lines of a forward: what each calls, and what the names in it stand for."""
