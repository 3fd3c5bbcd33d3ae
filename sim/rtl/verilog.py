"""The device's Verilog, generated when its sources have changed and kept by what was emitted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import gemmule
from gemmule.config import Config
from gemmule.hw.flow.verilog import generate
from gemmule.io.cache import cache_folder, writing
from gemmule.io.files import write_atomically
from gemmule.io.locks import exclusive
from gemmule.io.progress import say, working
from gemmule.sim.rtl.build import build_root, fingerprint
from gemmule.timing import Timing

__all__ = ["rtl_sources", "verilog_path"]


ROOT = Path(gemmule.__file__).resolve().parent


def rtl_sources(root: Path = ROOT) -> Iterator[Path]:
    """Every file that emitted Verilog can depend on: the contracts and ``hw``, below the folder of ``gemmule``."""
    for folder, pattern in ((root, "*.py"), (root / "numerics", "*.py"), ((root / "hw").resolve(), "**/*.py")):
        yield from sorted(folder.glob(pattern))


def _found(known: Path, config: Config) -> tuple[Path | None, str]:
    """The file that ``known`` points to, or what is wrong with it (empty: there is none)."""
    try:
        place = known.read_text(encoding="ascii")
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError):
        return None, known.name
    named = re.fullmatch(rf"{config.name}-verilog-([0-9a-f]{{16}})/\w[\w-]*\.sv", place)
    path = known.parent / place if named else known
    try:
        right = named is not None and fingerprint([path.read_bytes()]) == named.group(1)
    except FileNotFoundError:
        return None, ""
    except OSError:
        right = False
    return (path, "") if right else (None, str(path.relative_to(known.parent)))


def verilog_path(config: Config, timing: Timing | None = None) -> Path:
    """The device's Verilog for one instance.

    A file lies in a folder named after its text, so that a source that changes without changing the text costs no new
    simulator, and that a damaged file is seen. Unchanged sources are the shortcut that saves generating the text.

    Raises:
        CacheError: the cache cannot be written.
    """
    timing = timing or Timing.of(config)
    key = fingerprint([*(path.read_bytes() for path in rtl_sources()),
                       repr((config.model_dump(), vars(timing), version("amaranth"))).encode()])
    root = build_root()
    known = root / f"{config.name}-sources-{key}"
    found, _ = _found(known, config)
    if found:
        return found
    cache_folder("rtl")
    with writing(), exclusive(root / f"{known.name}.lock", f"the Verilog of {config.name}"):
        found, wrong = _found(known, config)
        if found:
            return found
        if wrong:
            say(f"the Verilog of {config.name} in {root} is damaged ({wrong}): generating it again")
        folder = root / f"{known.name}.partial"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with working(f"generating the Verilog of {config.name} (up to a minute; kept in {root})"):
                partial = generate(config, folder, timing)
            final = root / f"{config.name}-verilog-{fingerprint([partial.read_bytes()])}"
            final.mkdir(exist_ok=True)
            for path in folder.iterdir():
                path.replace(final / path.name)
            write_atomically(known, f"{final.name}/{partial.name}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return final / partial.name
