"""Definitions in C, C++ and CUDA sources."""

from opscope_tools.index.cpp.rows import CppRow
from opscope_tools.index.cpp.scan import definitions

__all__ = ["CppRow", "definitions"]
