"""The tools `collect_evidence` and `import_evidence`: the table of collectors run on a workload, records kept below posts/evidence/.

The engine of this name (evidence/) holds the collectors that only run programs; those here ask other engines too: gpu_code.py (what a compiler
makes of kernels, no GPU needed), gpu.py (what a GPU says), analyses.py (opscope's own counts, models and public tables).
"""
