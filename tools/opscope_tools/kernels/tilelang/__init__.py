"""Kernels written in TileLang: found, run abstractly, described."""
