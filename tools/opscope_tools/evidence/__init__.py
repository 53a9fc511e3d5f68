"""What a machine says of a model that runs on it: a fixed table of profiling commands, run on a workload, and what was read from them.

No command comes from a caller: sizes of the workload are numbers, everything else stands in the table. Order: scrub.py and bench.py (how a command is
run and what of it is kept), machine.py, parsers.py (text in, numbers out), table.py (what a collector is), collectors/ (the collectors, by
what they need), folded.py and flamegraph.py (stacks as a picture), programs/ (what is measured).
"""
