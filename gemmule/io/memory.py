"""How much memory this process has used."""

from __future__ import annotations

import sys

__all__ = ["peak_memory"]


def peak_memory() -> int | None:
    """The most bytes that were in memory at a time, mapped files included; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
