"""Energies per event, derived from the switching of the gates of ``tiny``: ``python -m benchmarks.energy``."""
