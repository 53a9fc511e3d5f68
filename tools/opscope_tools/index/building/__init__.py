"""An interpreter for constructors: what an object is made of, read off the source without running it.

Read in this order: values.py (what an expression can be), code.py (source to trees), base.py (names, classes, changes),
objects.py with containers.py (attributes, calls, torch's containers), expressions.py, statements.py, natives.py (the
functions of Python and of libraries; `Machine` is the whole).
"""

from opscope_tools.index.building.natives import Machine, annotated
from opscope_tools.index.building.values import ClassValue, Instance

__all__ = ["ClassValue", "Instance", "Machine", "annotated"]
