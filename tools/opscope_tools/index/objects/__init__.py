"""An interpreter for constructors: what an object is made of, read off the source without running it.

Read in this order: values.py (what an expression can be), syntax.py (source to trees), base.py (names, classes, changes),
attributes.py with containers.py (attributes, torch's containers), records.py (dataclasses), objects.py with memo.py (calls
and construction), expressions.py, literals.py, branches.py, statements.py, natives.py (`Machine`, the whole) with
builtin_functions.py and library_functions.py (what is not interpreted but known).
"""

from opscope_tools.index.objects import builtin_functions, library_functions
from opscope_tools.index.objects.library_functions import annotated
from opscope_tools.index.objects.natives import Machine
from opscope_tools.index.objects.values import ClassValue, Instance

#: their functions are registered by being imported
_REGISTERED = (builtin_functions, library_functions)

__all__ = ["ClassValue", "Instance", "Machine", "annotated"]
