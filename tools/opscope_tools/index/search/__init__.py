"""What words and structure find in source where names do not lead: a text search that ranks definitions."""
