"""The device's Verilog, generated when its sources have changed and kept by what was emitted."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import gemmule
from gemmule.config import Config
from gemmule.hw.flow.verilog import generate
from gemmule.sim.rtl.build import build_root, exclusive, fingerprint
from gemmule.timing import Timing

__all__ = ["rtl_sources", "verilog_path"]


ROOT = Path(gemmule.__file__).resolve().parent


def rtl_sources(root: Path = ROOT) -> Iterator[Path]:
    """Every file that emitted Verilog can depend on: the contracts and ``hw``, below the folder of ``gemmule``."""
    for folder, pattern in ((root, "*.py"), (root / "numerics", "*.py"), ((root / "hw").resolve(), "**/*.py")):
        yield from sorted(folder.glob(pattern))


def verilog_path(config: Config, timing: Timing | None = None) -> Path:
    """The device's Verilog for one instance.

    A file lies in a folder named after its text, so that a source that changes without changing the text costs no new
    simulator. Unchanged sources are the shortcut that saves generating the text.
    """
    timing = timing or Timing.of(config)
    key = fingerprint([*(path.read_bytes() for path in rtl_sources()),
                       repr((config.model_dump(), vars(timing), version("amaranth"))).encode()])
    root = build_root()
    known = root / f"{config.name}-sources-{key}"
    with exclusive(known.with_suffix(".lock")):
        if known.is_file() and (found := root / known.read_text()).is_file():
            return found
        folder = root / f"{config.name}-sources-{key}-partial"
        partial = generate(config, folder, timing)
        final = root / f"{config.name}-verilog-{fingerprint([partial.read_bytes()])}"
        final.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.replace(final / path.name)
        folder.rmdir()
        known.write_text(str((final / partial.name).relative_to(root)))
        return final / partial.name
