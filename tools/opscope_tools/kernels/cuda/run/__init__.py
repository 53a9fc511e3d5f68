"""The abstract run of a CUDA body: what each thread does, how often, and what it moves."""
