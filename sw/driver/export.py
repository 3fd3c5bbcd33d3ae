"""The folder that a host in C needs: header, driver, testbench, and a decoder as an image."""

from __future__ import annotations

from pathlib import Path

from gemmule.config import Config
from gemmule.io.files import write_atomically
from gemmule.sw.driver.bench import bench_files

__all__ = ["IMAGE_NAME", "export_driver"]

IMAGE_NAME = "decoder.gmd"


def export_driver(config: Config, folder: Path, image: bytes) -> list[Path]:
    """Write all files into ``folder``, each completely or not at all; their paths, the image's last.

    Raises:
        OSError: one cannot be written.
    """
    made = []
    for path, text in [*bench_files(config), (Path(IMAGE_NAME), image)]:
        write_atomically(folder / path.name, text)
        made.append(folder / path.name)
    return made
