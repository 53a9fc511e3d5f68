"""What a size, an index or a number of threads is while a kernel is read: formulas, thread digits, and how they are written."""
