"""One module per MCP tool, each thin, over sibling engines that never import one another."""
