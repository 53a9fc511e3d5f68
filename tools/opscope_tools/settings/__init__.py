"""The settings engine: what the text of a Python file says about parameters; nothing analysed is imported or run.

In order: source.py (a file as text and tree), meanings.py (what a parameter means, in the file's own words), reads.py
(where a model's file reads a configuration), messages.py (what errors and tests say), checks.py (assertions, raises and tests of
hardware and types), hooks.py
(kernels that a model's file takes from elsewhere). Which classes and names are meant, its callers say.
"""

from opscope_tools.settings.checks import checks_of, definitions_named
from opscope_tools.settings.hooks import kernel_hooks
from opscope_tools.settings.meanings import Meanings
from opscope_tools.settings.reads import Reader, config_reads
from opscope_tools.source.python.trees import PythonSource

__all__ = ["Meanings", "PythonSource", "Reader", "checks_of", "config_reads", "definitions_named", "kernel_hooks"]
