"""Time on named hardware: the table of devices, what each kernel class takes at least, and what measured kernels took.

`devices` says what a device can do, `forms` what a class of kernels asks of it, `grids` how a thin table is read between its
knots, `calibration` how long a kernel takes by what was measured on that device.
"""
