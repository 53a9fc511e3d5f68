"""Programs that are measured: each runs by itself, knows nothing of opscope, and does one thing that a tool can be pointed at."""
