"""The MCP surface of opscope: tools, resources, prompts, completion, over stdio and streamable HTTP."""
