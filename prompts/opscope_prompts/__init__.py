"""MCP prompts and report templates, and their loader."""
