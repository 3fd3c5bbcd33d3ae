"""Kernels: one operator each, as commands on virtual buffers; the only place that chooses device operations."""
