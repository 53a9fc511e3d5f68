"""Symbolic tracing: a worker process runs the model on shapes alone, and its record becomes cost documents.

In order: protocol.py (what is said between the processes), variables.py (standard names), operators/ (cost of each
operator, as pure functions of shapes), worker/ (the only code that imports torch and transformers), client.py (the
worker's keeper), document.py (from a trace to the documents), engine.py (what the tools call).
"""
