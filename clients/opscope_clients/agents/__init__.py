"""Headless agents on claude-agent-sdk: a module analyzer and a model analyzer, whose answers are checked by a trace.

`analysis` is the flow; `sdk` alone imports the SDK, and only when an agent is asked for.
"""
