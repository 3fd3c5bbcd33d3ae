"""A waveform of one program on the RTL (FST), with a layout for GTKWave beside it."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gemmule.config import Config
from gemmule.hw import tb
from gemmule.io.files import write_atomically
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.device import RtlDevice, RtlError
from gemmule.sim.rtl.fst import signals_of
from gemmule.timing import Timing

__all__ = ["GROUPS", "Waveform", "layout", "record_waveform"]

WAVES = Path("build/waves")
"""Below the working folder."""
_CONTROL = " ".join(f"control__{name}" for name in ("start", "ready", "release", "finish", "command"))
_MOVE = "spm__en spm__row"


def _in(path: str, names: str) -> tuple[str, ...]:
    return tuple(f"device.{path}{name}" for name in names.split())


GROUPS: Mapping[str, tuple[str, ...]] = {
    "clock, reset, interrupt": ("device.clk", "device.rst", "cycle", "device.irq"),
    "trace": _in("trace_", "start issue finish"),
    "control": _in("core.control.", "start running busy done code index cycles total"),
    "registers (AXI4-Lite)": _in(
        "s_axil_", "awvalid awready awaddr wvalid wready wdata wstrb bvalid bready bresp arvalid arready araddr rvalid "
        "rready rdata rresp"),
    "fetch": _in("core.fetch.", "read__req_valid read__req_ready read__req_addr read__beat_valid valid take command"),
    "dispatch": _in("core.dispatch.", "command_valid command_take fault valid zero alone pop"),
    "issue and claims": _in("core.u_issue.", "valid ready start issue finish active waiting release free"),
    "load": _in("core.units.load.", f"{_CONTROL} read__req_valid read__req_ready read__req_addr read__beat_valid "
                f"{_MOVE} acc_read__en acc_read__row acc_write__en acc_write__row moved"),
    "store": _in("core.units.store.", f"{_CONTROL} {_MOVE} acc__en acc__row moved"),
    "matrix": _in("core.units.matrix.", f"{_CONTROL} a__en a__row b__en b__row acc_read__en acc_read__row "
                  "acc_write__en acc_write__row"),
    "vector": _in("core.units.vector.", f"{_CONTROL} r0__en r0__row r1__en r1__row acc__en acc__row w__en w__row "
                  "acc_w__en acc_w__row"),
    "select": _in("core.units.select.", f"{_CONTROL} {_MOVE} w__en w__row predicates"),
    "DRAM, reads (AXI4)": _in("m_axi_", "arvalid arready araddr arlen rvalid rready rdata rlast rresp"),
    "DRAM, writes (AXI4)": _in(
        "m_axi_", "awvalid awready awaddr awlen wvalid wready wdata wstrb wlast bvalid bready bresp"),
    "rules": ("protocol_error", "queue_error", "foreign"),
}
"""Signals of the layout by group, by their path below the testbench."""
UNFOLDED = ("clock, reset, interrupt", "trace", "control")
DECIMAL = ("cycle", "cycles", "index", "total")


@dataclass(frozen=True)
class Waveform:
    """What was recorded."""

    path: Path
    layout: Path

    @property
    def command(self) -> str:
        """The line that opens it."""
        return shlex.join(["gtkwave", str(self.path), str(self.layout)])


def layout(signals: Mapping[str, str], file: str) -> str:
    """A save file of GTKWave with :data:`GROUPS`, most of them folded; what a waveform does not have is left out.

    Parameters
    ----------
    signals: as :func:`gemmule.sim.rtl.fst.signals_of` gives them.
    file: the waveform's name.
    """
    lines = [f'[dumpfile] "{file}"', "[timestart] 0", "[size] 1600 1000", "[sst_width] 250", "[signals_width] 300",
             f"[treeopen] {tb.TOP}.", f"[treeopen] {tb.TOP}.device.", f"[treeopen] {tb.TOP}.device.core."]
    for group, names in GROUPS.items():
        begin, end = ("@800200", "@1000200") if group in UNFOLDED else ("@c00200", "@1401200")
        lines += [begin, f"-{group}"]
        for name in names:
            if (bits := signals.get(f"{tb.TOP}.{name}")) is None:
                continue
            form = "@24" if name.split(".")[-1] in DECIMAL else "@22" if bits else "@28"  # decimal, hexadecimal, binary
            lines += [form, f"{tb.TOP}.{name}{bits}"]
        lines += [end, f"-{group}"]
    return "\n".join(lines) + "\n"


def record_waveform(case: Launch, config: Config, timing: Timing | None = None, *,
                    path: Path | None = None) -> Waveform:
    """Run a case on RTL built with tracing (the first time this takes a minute or more).

    The layout lies beside the waveform ``path``, by default in ``build/waves`` below the working folder, named after
    configuration, program and seed. The device starts from reset, so what earlier launches left in its memories is not
    there.

    Raises:
        OSError: the folder cannot be written.
    """
    path = (path or WAVES / f"{config.name}-{case.name.replace(' ', '-')}-{case.seed}.fst").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    done = Waveform(path, path.with_suffix(".gtkw"))
    with RtlDevice(config, timing, waves=True) as rtl:
        rtl.load(case)
        with contextlib.suppress(RtlError):  # a hang or a broken AXI rule is what the waveform is to show
            rtl.run()
    try:
        dump = rtl.folder / "dump.fst"
        text = layout(signals_of(dump), done.path.name)
        part = done.path.with_name(f".{path.stem}.part")
        shutil.move(dump, part)  # often from another file system: it appears whole
        part.replace(done.path)
        write_atomically(done.layout, text)
    finally:
        shutil.rmtree(rtl.folder, ignore_errors=True)
    return done
