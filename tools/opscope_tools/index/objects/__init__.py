"""An interpreter for constructors: what an object is made of, read off the source without running it.

Read in this order: values.py (what an expression can be), state.py (budgets, branches, changes), interpreter.py (the parts
and what each is handed, parts.py), then the parts: classes.py (and the names of modules), records.py (dataclasses),
operations.py, attributes.py, calls.py with memo.py, expressions.py, literals.py, branches.py, statements.py. What is not
interpreted stands in known/: torch's containers, and functions of Python and of libraries.
"""

from opscope_tools.index.objects.interpreter import Interpreter
from opscope_tools.index.objects.known import builtin_functions, library_functions
from opscope_tools.index.objects.values import ClassValue, Instance

#: their functions are registered by being imported
_REGISTERED = (builtin_functions, library_functions)

__all__ = ["ClassValue", "Instance", "Interpreter"]
