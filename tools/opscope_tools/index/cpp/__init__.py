"""Definitions in C, C++ and CUDA sources, read by a scanner of its own.

tree-sitter's grammar gives up on the macros of these sources (58 % of torch's headers parse with errors), so a scanner
of brackets and statements reads them: text.py (comments, conditionals, braces), statements.py (one declaration),
heads.py (what it declares), scan.py (the walk over a file), rows.py (what comes out), files.py (a repository's files),
queries.py (the questions, `CppIndex`).
"""

from opscope_tools.index.cpp.queries import AT_LINE, CppAnswer, CppIndex, CppSymbol
from opscope_tools.index.cpp.rows import CLASS_KINDS, CppRow
from opscope_tools.index.cpp.scan import definitions

__all__ = ["AT_LINE", "CLASS_KINDS", "CppAnswer", "CppIndex", "CppRow", "CppSymbol", "definitions"]
