"""The MCP tool `estimate_roofline`: how long a pass takes on named hardware, and whether it fits.

`kernels` turns the operators of a trace into kernels with sizes at a point, `times` asks the hardware engine for each, `memory`
holds weights, cache and activations against the device, `tool` is the tool.
"""
