"""Ways into opscope: the command line over the catalogue of tools, and the scripted MCP client."""
