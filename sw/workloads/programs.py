"""Programs that commands run as they are: a product on random data, one pass of a bundled model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.product import ProductMapping
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.programs.product import INT8, ProductProgram, compile_product
from gemmule.config import Config
from gemmule.numerics import requant, requant_store
from gemmule.sim.launch import Launch
from gemmule.sw.errors import InputError
from gemmule.sw.limits import SMALL
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.models.placed import Placed
from gemmule.timing import ceil_div

__all__ = ["Product", "bundled_program", "decode_launch", "product"]


@dataclass(frozen=True)
class Product:
    """A compiled product with random operands and its expected result (int8 ``[m, n]``)."""

    program: ProductProgram
    case: Launch
    expected: np.ndarray


def product(config: Config, m: int, k: int, n: int, seed: int, *, weights: WeightFormat = INT8,
            dataflow: str = "ws", mapping: ProductMapping | None = None) -> Product:
    """A product on random operands, requantised so that results fill the int8 range; by default the formula's mapping.

    Raises:
        CompileError: the shape does not fit.
    """
    program = compile_product(config, m, k, n, weights=weights, dataflow=dataflow, mapping=mapping)
    rng = np.random.default_rng(seed)
    a = rng.integers(-128, 128, (m, k), dtype=np.int8)
    half = 1 << weights.bits - 1
    b = rng.integers(-half, half, (k, n), dtype=np.int8)
    scales, scaled = None, b.astype(np.float64)
    if weights.group:
        scales = rng.integers(1, 16, (ceil_div(k, weights.group), n), dtype=np.uint8)
        scaled *= np.repeat(scales, weights.group, axis=0)[:k]
    mult = rng.integers(1 << 15, 1 << 16, n).astype(np.uint16)
    spread = np.log2(74 * np.sqrt(k) * max(1.0, float(scaled.std())))  # standard deviation of a sum of products
    shift = np.full(n, max(0, round(16 + spread - 5.5)), dtype=np.uint8)
    acc = (a.astype(np.float64) @ scaled).astype(np.int64)
    expected = requant_store(requant(acc, mult.astype(np.int64), shift)).astype(np.int8)
    case = program.launch(
        f"gemm {m}x{k}x{n}", program.fill(a, b, mult, shift, scales), program.registers(), seed=seed)
    return Product(program, case, expected)


def bundled_program(name: str, config: Config) -> Placed:
    """The compiled program of a model of the small pair.

    Raises:
        InputError: it does not fit the configuration.
    """
    bundled = bundled_pair(SMALL)
    place = bundled.draft if name == "draft" and bundled.draft else bundled.target
    return place(config, 0)


def decode_launch(name: str, config: Config, rows: int, position: int, seed: int) -> Launch:
    """One pass of a bundled model over ``rows`` random tokens, on a random KV cache of ``position`` rows.

    Raises:
        InputError: the rows do not fit.
    """
    placed = bundled_program(name, config)
    program = placed.program
    if not 1 <= rows <= program.max_rows or not 0 <= position <= program.max_positions - rows:
        raise InputError(
            f"--rows must be from 1 to {program.max_rows} and --position from 0 to "
            f"{program.max_positions} - rows, not {rows} and {position}")
    rng = np.random.default_rng(seed)
    dram = placed.dram.copy()
    program.put(dram, CACHE, rng.integers(0, 256, program.symbols[CACHE][1], dtype=np.uint8))
    tokens = [int(t) for t in rng.integers(2, program.graph.vocab, rows)]
    step = program.step(Rows.chain(tokens, position), rows)
    for address, content in step.inputs:
        dram[address:address + content.size] = content
    return program.launch(f"{name} rows {rows} position {position}", dram, step.registers, seed=seed)
