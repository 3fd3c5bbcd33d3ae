"""One launch: a program with everything it needs, the same on every back end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Launch"]


@dataclass(frozen=True, eq=False)
class Launch:
    """A program image with the DRAM around it and the registers of one start.

    Every device takes it with ``device.load(launch)`` and runs it with ``device.run()``.
    """

    name: str
    """For reports and files of waveforms."""
    seed: int
    """Of the random data in it; 0 where nothing is random."""
    image: bytes
    program: int
    """DRAM address of the image."""
    dram: np.ndarray
    """uint8: content of the DRAM from address 0 on."""
    bases: np.ndarray
    limits: np.ndarray
    lengths: np.ndarray
    """Base and limit registers (bytes) and length registers, int64."""
    faulty: bool = False
    """Some command faults on purpose; the verifier would refuse the program."""
