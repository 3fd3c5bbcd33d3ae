"""A combinational module in Yosys' JSON, built gate by gate: what a proof is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmule.hw.flow.cells import Bit

__all__ = ["MOST", "Gates", "TooLargeError"]

MOST = 40_000
"""Cells beyond which an attempt is left out."""


class TooLargeError(Exception):
    """A proof has more than :data:`MOST` cells."""


@dataclass(eq=False)
class Gates:
    """Cells, and inputs that may be anything."""

    cells: dict[str, Any] = field(default_factory=dict)
    inputs: list[Bit] = field(default_factory=list)
    free: dict[tuple[Any, ...], Bit] = field(default_factory=dict)
    last: int = 1

    def new(self) -> int:
        self.last += 1
        return self.last

    def given(self, *name: Any) -> Bit:
        """A bit that may be anything, the same for the same name."""
        if name not in self.free:
            self.free[name] = self.new()
            self.inputs.append(self.free[name])
        return self.free[name]

    def add(self, kind: str, parameters: Mapping[str, Any], directions: Mapping[str, str],
            nets: Mapping[str, list[Bit]]) -> None:
        if len(self.cells) >= MOST:
            raise TooLargeError
        self.cells[f"c{len(self.cells)}"] = {
            "type": kind, "parameters": dict(parameters), "attributes": {}, "port_directions": dict(directions),
            "connections": nets}

    def cell(self, kind: str, parameters: Mapping[str, Any], **nets: list[Bit]) -> None:
        self.add(kind, parameters, {port: "output" if port == "Y" else "input" for port in nets}, nets)

    def gate(self, kind: str, *inputs: Bit) -> Bit:
        """One bit of $not, $and, $or, $xor, $xnor."""
        made, names = self.new(), ("A", "B")[:len(inputs)]
        parameters: dict[str, Any] = {f"{name}_SIGNED": 0 for name in names}
        parameters |= {f"{name}_WIDTH": 1 for name in names} | {"Y_WIDTH": 1}
        self.cell(kind, parameters, **{name: [bit] for name, bit in zip(names, inputs)}, Y=[made])
        return made

    def choose(self, no: Bit, yes: Bit, select: Bit) -> Bit:
        if no == yes:
            return no
        made = self.new()
        self.cell("$mux", {"WIDTH": 1}, A=[no], B=[yes], S=[select], Y=[made])
        return made

    def any(self, bits: list[Bit]) -> Bit:
        bits = [bit for bit in dict.fromkeys(bits) if bit != "0"]
        if len(bits) < 2:
            return bits[0] if bits else "0"
        made = self.new()
        self.cell("$reduce_or", {"A_SIGNED": 0, "A_WIDTH": len(bits), "Y_WIDTH": 1}, A=bits, Y=[made])
        return made

    def differ(self, first: list[Bit], second: list[Bit]) -> Bit:
        return self.any([self.gate("$xor", a, b) for a, b in zip(first, second, strict=True) if a != b])

    def module(self, **outputs: list[Bit]) -> str:
        """All cells, with these outputs, in Yosys' JSON."""
        ports = {name: {"direction": "output", "bits": bits} for name, bits in outputs.items()}
        ports["given"] = {"direction": "input", "bits": self.inputs or [self.new()]}
        return json.dumps({"modules": {"miter": {
            "attributes": {"top": 1}, "ports": ports, "cells": self.cells, "netnames": {}}}})
