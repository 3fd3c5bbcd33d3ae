"""Faults that random programs must find: in the model one line that reads differently, in the RTL one that a plusarg
chooses among several."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType

from amaranth.hdl import Const, Instance, Module, Signal

__all__ = ["HULLS", "MODEL", "RTL", "planted_rtl", "with_choice", "with_hulls"]

_CHOICE = """
module planted_number(output reg [7:0] number = 0);
  initial if ($value$plusargs("planted=%d", number)) ;
endmodule
"""

MODEL: dict[str, tuple[str, str, str]] = {
    "norm sum of 24 bits": (
        "gemmule.numerics.norm", "sums = wide.sum(axis=1) if mean",
        "sums = ((wide.sum(axis=1) + (1 << 23)) % (1 << 24) - (1 << 23)) if mean"),
    "norm squares of 40 bits": (
        "gemmule.numerics.norm", "n * (wide ** 2).sum(axis=1) -", "n * ((wide ** 2).sum(axis=1) % (1 << 40)) -"),
    "softmax sum of 30 bits": (
        "gemmule.numerics.softmax", "before & (1 << SUM_BITS) - 1", "before & (1 << 30) - 1"),
    "importance up to 2**28": (
        "gemmule.numerics.select", "IMPORTANCE_MAX = (1 << 32) - 1", "IMPORTANCE_MAX = (1 << 28) - 1"),
    "gather index 65535": (
        "gemmule.sim.functional.execute", "np.minimum(entries, raw[_LAST_INDEX])",
        "np.minimum(np.where(entries == 65535, 65534, entries), raw[_LAST_INDEX])"),
    "narrow store of INT_MIN": (
        "gemmule.sim.functional.execute", "np.clip(inside, -128, 127)",
        "np.clip(np.where(inside == -1 << 31, 127, inside), -128, 127)"),
    "refresh boundary of writes": (
        "gemmule.sim.timing.dram",
        "after_refresh(p, start, length, dram.refresh", "after_refresh(p, start, length + write, dram.refresh"),
}
"""Module, what stands there once, what stands there instead."""

RTL: dict[str, tuple[str, str, str]] = {
    "narrow store of INT_MIN": (
        "gemmule.hw.move.store_read", "Cat(saturated(lanes.word_select(lane, 32)) for lane in range(bus))",
        "Cat(Mux((PLANTED == 1) & (lanes.word_select(lane, 32) == 1 << 31), Const(127, 8), "
        "saturated(lanes.word_select(lane, 32))) for lane in range(bus))"),
    "forwarding by 6 bits of the row": (
        "gemmule.hw.move.load_write", "(walker.row == row)",
        "Mux(PLANTED == 2, walker.row[:6] == row[:6], walker.row == row)"),
    "negative tie of a wide result at shift 1": (
        "gemmule.hw.vector.lane", "                        rounded)),",
        "rounded - ((PLANTED == 3) & op.wide & op.store & (first.shift == 1) & scaled[0] & scaled[-1]))),"),
    "norm sum of 24 bits": (
        "gemmule.hw.vector.sums", "self.summed.row.eq(token[5].row), self.summed.data.eq(s),",
        "self.summed.row.eq(token[5].row), self.summed.data.eq(Mux(PLANTED == 4, s[:24].as_signed(), s)),"),
    "norm squares of 40 bits": (
        "gemmule.hw.vector.sums", "n_total.eq(total * command.n)",
        "n_total.eq(Mux(PLANTED == 5, total[:40], total) * command.n)"),
}
"""As :data:`MODEL`; ``PLANTED`` is the number of the fault that is wanted, from 1 on, in this order."""


HULLS = "spm0", "spm1", "spm2", "acc0", "acc2", "angles"
"""Masks of banks in hw/command/banks.py."""


@contextmanager
def planted_rtl() -> Iterator[None]:
    """Inside the block the classes of the RTL elaborate with the faults in them."""
    saved: list[tuple[type, str, object]] = []
    texts: dict[str, str] = {}
    for module, old, new in RTL.values():
        text = texts.get(module) or Path(str(importlib.import_module(module).__file__)).read_text()
        assert text.count(old) == 1, f"{old!r} must stand once in {module}"
        texts[module] = text.replace(old, new)
    try:
        for name, text in texts.items():
            real, changed = sys.modules[name], ModuleType(name)
            changed.__file__ = real.__file__
            changed.__dict__.update(PLANTED=Const(0, 8), Const=Const)
            exec(compile(text, str(real.__file__), "exec"), changed.__dict__)
            own = [kind for kind in vars(real).values() if isinstance(kind, type) and kind.__module__ == name]
            for kind in own:
                for method, body in vars(changed.__dict__[kind.__name__]).items():
                    if isinstance(body, FunctionType) and method != "__init__":
                        saved.append((kind, method, vars(kind)[method]))
                        setattr(kind, method, _with_number(body, changed) if method == "elaborate" else body)
        yield
    finally:
        for kind, method, body in saved:
            setattr(kind, method, body)


def _with_number(body: FunctionType, module: ModuleType) -> Callable[[object, object], Module]:
    """``elaborate`` with the number of the fault from outside of Amaranth, which would take a constant for one."""
    def elaborate(self: object, platform: object) -> Module:
        module.__dict__["PLANTED"] = number = Signal(8)
        m: Module = body(self, platform)
        m.submodules.planted = Instance("planted_number", o_number=number)
        return m

    return elaborate


def with_choice(verilog: str) -> str:
    """The Verilog in which ``+planted=<number>`` chooses the fault."""
    assert verilog.count("planted_number ") >= len({module for module, _, _ in RTL.values()})
    return verilog + _CHOICE


def with_hulls(verilog: str, banks: int) -> str:
    """The Verilog, with an argument ``+hull=<name>`` that takes the last of so many banks from that hull's mask."""
    start = verilog.index("\nmodule gemmule_core_dispatch_resolve_banks(")
    end = verilog.index("\nendmodule", start)
    text = verilog[start:end]
    for name in HULLS:
        found = re.search(rf"^  assign {name}_banks = (\S+) \[{banks - 1}:0\];$", text, re.MULTILINE)
        assert found, name
        line = re.search(rf"^  assign {re.escape(found[1])}  = (.*);$", text, re.MULTILINE)  # what all users look at
        assert line, name
        text = text.replace(line[0], f"""  reg {name}_small = 0;
  initial {name}_small = $test$plusargs("hull={name}");
  wire [15:0] {name}_whole = {line[1]};
  assign {found[1]} = {name}_small ? {name}_whole & ({name}_whole >> 1) : {name}_whole;""")
    return verilog[:start] + text + verilog[end:]
