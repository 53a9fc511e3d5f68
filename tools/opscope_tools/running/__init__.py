"""What runs tools: the shape of a tool, the session, the workspace with its engines, and what a caller may hand in."""
