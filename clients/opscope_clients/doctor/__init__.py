"""`opscope doctor`: what opscope needs and what it can use, looked for here and now, each with what it is for.

`findings` is what a check says; `required`, `places`, `server`, `tools` and `config` are the checks; `cli` runs and prints them.
"""
