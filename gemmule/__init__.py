"""Gemmule: an open transformer accelerator with its co-design toolkit."""

__version__ = "0.1.0"
