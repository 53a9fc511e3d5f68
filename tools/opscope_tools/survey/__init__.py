"""The survey engine: reconnaissance of a repository, read and never imported.

Read in this order: facts.py (what one file says), module.py (a parsed file), definitions.py, environment_reads.py,
flag_reads.py, markers.py with topics.py (what is taken from it), python_file.py and plain_file.py (one file), gather.py (all
files, in processes of reading.py), roles.py and holdings.py (all files together), then a module for each section: layout.py,
frameworks.py, entries.py, environment.py, configuration.py, signals.py, components.py, subjects.py, extensions.py; typing_of.py,
nesting.py and engine_loop.py for the engine's loop; survey.py puts them together.
"""
