"""The report engine: facts in (schemas of the other tools, and their sources), a checked Markdown report out.

Order of reading: outline.py (the sections), facts.py (what is known), overview.py, components.py, flow.py, memory.py,
parallel.py, performance.py and reference.py (what each section says), render.py (put together), checks.py (what is
refused).
"""
