"""The units and the memories between them."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Component, In, Out, connect

from gemmule.config import Config
from gemmule.hw.command.dispatch import UNIT_LAYOUTS
from gemmule.hw.matrix.matrix import Matrix
from gemmule.hw.memory.accumulator import Accumulator
from gemmule.hw.memory.scratchpad import Scratchpad
from gemmule.hw.move.load import Load
from gemmule.hw.move.store import Store
from gemmule.hw.select.select import Select
from gemmule.hw.vector.vector import Vector
from gemmule.isa import NUM_PREDICATES
from gemmule.timing import Timing

__all__ = ["Units"]


class Units(Component):
    """The units with their memories: what issue starts.

    Members
    -------
    load, store, matrix, vector, select: In(UnitControl)
        From issue.
    clear: In(1)
        Start strobe.
    predicates: Out(4)
        For issue.
    read: Out(read_request), write: Out(axi_write)
        DRAM.
    error: Out(1)
        AXI error response.
    load_moved, store_moved: Out(1)
        The unit moves data in this cycle, for the counters.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None) -> None:
        timing = timing or Timing.of(config)
        self.load_unit = Load(config=config, timing=timing)
        self.store_unit = Store(config=config, timing=timing)
        self.matrix_unit = Matrix(config=config, timing=timing)
        self.vector_unit = Vector(config=config, timing=timing)
        self.select_unit = Select(config=config, timing=timing)
        self.scratchpad = Scratchpad(config=config)
        self.accumulator = Accumulator(config=config)
        super().__init__({
            **{name: getattr(self, f"{name}_unit").signature.members["control"] for name in UNIT_LAYOUTS},
            "read": self.load_unit.signature.members["read"],
            "write": self.store_unit.signature.members["axi"],
            "clear": In(1), "predicates": Out(NUM_PREDICATES),
            "error": Out(1), "load_moved": Out(1), "store_moved": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        load, store, matrix, vector = self.load_unit, self.store_unit, self.matrix_unit, self.vector_unit
        select = self.select_unit
        spm, acc = self.scratchpad, self.accumulator
        m.submodules.load, m.submodules.store = load, store
        m.submodules.matrix, m.submodules.vector = matrix, vector
        m.submodules.select = select
        m.submodules.scratchpad, m.submodules.accumulator = spm, acc
        for name in UNIT_LAYOUTS:
            connect(m, wiring.flipped(getattr(self, name)), getattr(self, f"{name}_unit").control)
        connect(m, wiring.flipped(self.read), load.read)
        connect(m, wiring.flipped(self.write), store.axi)
        connect(m, load_spm=load.spm, spm_load_w=spm.load_w)
        connect(m, load_read=load.acc_read, acc_load_r=acc.load_r)
        connect(m, load_write=load.acc_write, acc_load_w=acc.load_w)
        connect(m, store_spm=store.spm, spm_store_r=spm.store_r)
        connect(m, store_acc=store.acc, acc_store_r=acc.store_r)
        connect(m, matrix_a=matrix.a, spm_matrix_a=spm.matrix_a)
        connect(m, matrix_b=matrix.b, spm_matrix_b=spm.matrix_b)
        connect(m, vector_r0=vector.r0, spm_vector_r0=spm.vector_r0)
        connect(m, vector_r1=vector.r1, spm_vector_r1=spm.vector_r1)
        connect(m, vector_w=vector.w, spm_vector_w=spm.vector_w)
        connect(m, select_r=select.spm, spm_select_r=spm.select_r)
        connect(m, select_w=select.w, spm_select_w=spm.select_w)
        connect(m, load_list=load.list, select_load_list=select.load_list)
        connect(m, store_list=store.list, select_store_list=select.store_list)
        connect(m, matrix_read=matrix.acc_read, acc_matrix_read=acc.matrix_read)
        connect(m, matrix_write=matrix.acc_write, acc_matrix_write=acc.matrix_write)
        connect(m, vector_acc=vector.acc, acc_vector_r0=acc.vector_r0)
        connect(m, vector_acc_w=vector.acc_w, acc_vector_w=acc.vector_w)
        m.d.comb += [
            select.clear.eq(self.clear), self.predicates.eq(select.predicates),
            self.error.eq(load.error | store.error),
            self.load_moved.eq(load.moved), self.store_moved.eq(store.moved),
        ]
        return m
