"""Verilog for others: one file or a file a block, each with a header, and a manifest that says what they are."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import gemmule
from gemmule.config import Config
from gemmule.hw.flow.names import module_texts
from gemmule.hw.flow.verilog import TOP, UNITS, Verilog, verilog_of
from gemmule.io.files import write_atomically
from gemmule.timing import Timing

__all__ = ["Export", "blocks", "export"]

CONTAINERS = (TOP, f"{TOP}.core", f"{TOP}.core.units")
"""What only holds blocks of the diagram: each has a file for its own module."""


@dataclass(frozen=True)
class Export:
    """Files that were written."""

    files: tuple[Path, ...]
    """In compile order: a module stands before those that use it."""
    manifest: Path
    filelist: Path | None
    """``-F`` file of the simulators and of synthesis, of a split export."""

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def _block(path: str) -> str:
    """The block that a module belongs to, by its path: a container itself, or what a container holds."""
    parts = path.split(".")
    while len(parts) > 1 and ".".join(parts) not in CONTAINERS and ".".join(parts[:-1]) not in CONTAINERS:
        parts.pop()
    return ".".join(parts)


def blocks(verilog: Verilog) -> dict[str, str]:
    """The device's text by block: the name of the block's module, and that module behind all that are inside it.

    Blocks stand before those that hold them.
    """
    texts = module_texts(verilog.text)
    found: dict[str, list[str]] = {}
    for name in reversed(texts):  # Yosys writes a module before what is inside it
        found.setdefault(_block(verilog.modules[name]), []).append(texts[name])
    names = {path: name for name, path in verilog.modules.items()}
    order = sorted(found, key=lambda path: (-path.count("."), path))
    return {names[path]: "\n".join(found[path]) for path in order}


def _command(config: Config, source: str, unit: str, split: bool, sources: bool) -> str:
    words = ["gemmule", "verilog", "--config", source or config.name]
    words += ["--unit", unit] if unit != TOP else []
    words += ["--split"] if split else []
    return shlex.join(words + (["--source-attributes"] if sources else []))


def _header(config: Config, module: str, command: str, yosys: str) -> str:
    """Comment at the beginning of every file; the same for the same configuration and versions."""
    return f"""\
// SPDX-License-Identifier: Apache-2.0
//
// Gemmule {gemmule.__version__}, module {module}, configuration {config.name}:
//   {config.dim} x {config.dim} mesh, {config.lanes} vector lanes, AXI4 with {8 * config.bus_bytes} data and \
{config.address_bits} address bits,
//   scratchpad {config.spm_kib} KiB in {config.spm_banks} banks, accumulator {config.acc_kib} KiB in \
{config.acc_banks} banks
//   sha256 {config.sha256}
// Made by: {command}
// With Amaranth {version("amaranth")}, Yosys {yosys}

"""


def export(config: Config, out_dir: Path | str, *, unit: str = TOP, timing: Timing | None = None,
           split: bool = False, sources: bool = False, source: str = "") -> Export:
    """Write the device or one entry of ``UNITS``, with ``<unit>_<config>.manifest.json`` behind it.

    One file ``<unit>_<config>.sv``; with ``split`` a folder ``gemmule_<config>`` with a file for each block of the
    diagram, named after its module, and the list ``gemmule_<config>.f`` of them. Each file appears whole, the manifest
    last; while they are written there is none. Files whose text is the same are left alone; the list of an earlier
    export with ``split`` goes when there is one file.

    Parameters
    ----------
    split: only of the whole device.
    sources: attributes with file and line of the Python.
    source: what names the configuration in the header's command, by default its name.

    Raises:
        ValueError: an unknown unit, or ``split`` of a unit.
        OSError: a file cannot be written; there is no manifest then.
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
    if split and unit != TOP:
        raise ValueError(f"split is for the whole device, not for {unit!r}: a unit alone is one file")
    timing = timing or Timing.of(config)
    folder, stem = Path(out_dir), f"{unit}_{config.name}"
    verilog = verilog_of(UNITS[unit](config, timing), unit, sources=sources)
    command = _command(config, source, unit, split, sources)
    made = {f"{stem}/{name}.sv": text for name, text in blocks(verilog).items()} if split else {
        f"{stem}.sv": verilog.text}
    made = {name: _header(config, Path(name).stem if split else unit, command, verilog.yosys) + text
            for name, text in made.items()}
    listed = {f"{stem}.f": "".join(f"{name}\n" for name in made)} if split else {}
    manifest = json.dumps({
        "module": unit, "version": gemmule.__version__, "config": config.model_dump(mode="json"),
        "config_sha256": config.sha256, "timing": vars(timing), "command": command,
        "tools": {"amaranth": version("amaranth"), "yosys": verilog.yosys},
        "files": [{"path": name, "bytes": len(text.encode()), "sha256": hashlib.sha256(text.encode()).hexdigest()}
                  for name, text in made.items()],
        "filelist": f"{stem}.f" if split else None, "ports": verilog.ports,
    }, indent=2) + "\n"
    _write(folder, made | listed, f"{stem}.manifest.json", manifest)
    if not split:
        (folder / f"{stem}.f").unlink(missing_ok=True)  # of an earlier export in files
    return Export(tuple(folder / name for name in made), folder / f"{stem}.manifest.json",
                  folder / f"{stem}.f" if split else None)


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _write(folder: Path, texts: dict[str, str], manifest: str, said: str) -> None:
    """Write what differs; an old manifest goes first, the new one comes last."""
    changed = {name: text for name, text in texts.items() if not _same(folder / name, text)}
    if not changed and _same(folder / manifest, said):
        return
    (folder / manifest).unlink(missing_ok=True)
    for name, text in changed.items():
        write_atomically(folder / name, text)
    write_atomically(folder / manifest, said)
