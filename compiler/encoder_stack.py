"""Encoder layers of one shape as one program, whose body is a layer.

Every layer reads and writes the same rows in DRAM; its weights stand behind those of the layer before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.encoder import (
    LOADED,
    SPILLED,
    STORED,
    EncoderProgram,
    emit_layer,
    pack_static,
    plan_encoder,
)
from gemmule.compiler.encoder_reference import EncoderLayer
from gemmule.compiler.errors import CompileError
from gemmule.compiler.hoist import hoist_loads
from gemmule.compiler.layout import Regions
from gemmule.compiler.roll import ScalingRegisters, roll_layers
from gemmule.compiler.turns import place_turn_waits
from gemmule.config import Config
from gemmule.isa import CONTROL, NUM_LENGTHS, Command, encode_program

__all__ = ["compile_encoder_stack"]

REGISTERS = ScalingRegisters(pointer=1, first=2, count=NUM_LENGTHS - 2)
IN_PLACE = {"y8": "x8", "y16": "x16"}
"""What a layer leaves is what the next one begins with."""
TURNS = 3
"""Turns of a body that may race with each other in different ways."""


def compile_encoder_stack(layers: Sequence[EncoderLayer], config: Config, base_address: int = 0, *,
                          rolled: bool = True) -> EncoderProgram:
    """Compile quantised encoder layers of one shape; the scalings of their heads and norms may differ.

    With ``rolled`` the program is one layer and a REPEAT; without, all layers stand in the image, with the same waits.

    Raises:
        CompileError: layers of different shapes, or what does not fit the configuration.
    """
    if len({layer.shape for layer in layers}) != 1:
        raise CompileError(f"a stack must have layers of one shape, not {len({layer.shape for layer in layers})}")
    shape, count = layers[0].shape, len(layers)
    plan, statics = plan_encoder(config, shape), [pack_static(layer, config) for layer in layers]
    size = statics[0].size
    straight = []
    for i, layer in enumerate(layers):
        table = {name: (offset + i * size, length) for name, (offset, length) in statics[0].table.items()}
        straight.append(hoist_loads(emit_layer(config, layer, plan, table), config, SPILLED))
    commands = roll_layers(straight, config, REGISTERS)

    def program(commands: Sequence[Command]) -> EncoderProgram:
        image = encode_program(commands)
        regions = Regions(config)
        regions.put("static", np.concatenate([static.image() for static in statics]))
        for name in dict.fromkeys((*LOADED[1:], *STORED)):
            if name not in IN_PLACE:
                regions.reserve(name, shape.sequence * shape.hidden * (2 if name.endswith("16") else 1))
        regions.put("program", np.frombuffer(image, dtype=np.uint8))  # last: the length of it moves nothing else
        symbols = regions.symbols(base_address)
        symbols |= {name: symbols[where] for name, where in IN_PLACE.items()}
        return EncoderProgram(
            config=config, image=image, commands=tuple(commands), base_address=base_address, size=regions.size,
            symbols=symbols, bases=dict(enumerate((*LOADED, *STORED))), shape=shape, plan=plan, dram=regions.image())

    commands = place_turn_waits(commands, config, [program(commands).registers()], turns=min(TURNS, count))
    if not rolled:
        body = [command.waits for command in commands if command.unit != CONTROL]
        commands = [replace(command, waits=waits) for layer in straight for command, waits in zip(layer, body)]
    made = program(commands)
    return made.verified(made.registers())
