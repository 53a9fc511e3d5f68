"""Config files of MCP hosts: what belongs into which file of which host, edits that leave the rest of a file alone.

`table` knows the hosts, `jsonc` and `toml` edit text, `files` reads and writes, `record` remembers what was done, `install` and
`uninstall` use them all.
"""
