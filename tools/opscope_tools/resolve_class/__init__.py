"""The tool `resolve_class`: what a name means in Python and in C++."""
