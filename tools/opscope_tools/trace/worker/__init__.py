"""The worker process: the only code of opscope that imports torch and transformers.

In order: __main__.py (the request loop), patches.py (what keeps sizes symbolic), symbols.py (from torch's symbolic
integers to formulas), alike.py (which layers are of one kind), models.py (from a spec to config, class and variables),
frames.py (from stack frames to source lines), recorder.py (what runs, line by line), floors.py (what cannot be avoided),
session.py (one trace from request to record), inspection.py (a model's tree).
"""
