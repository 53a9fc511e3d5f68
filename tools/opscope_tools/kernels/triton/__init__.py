"""Triton kernels: definitions, parameters, decorators, the abstract run of their bodies, their launches."""
