"""Python source: parsed once, as rows; modules, imports, names, and what an expression comes to."""
