"""Python around kernels: what launchers compute before they launch."""
