"""The collectors, by what they ask: the machine and its kernel, samplers and debuggers, memory and simulated caches, a GPU."""
