"""Forms of activation functions: how near each is to GELU, what it costs a model in quality, and a pass in cycles.

Perplexity is the bundled target's, as its integer interpreter computes it, on the completion prompts, which no training
saw; the device has those numbers bit for bit. Its function is no GELU, so that of I-BERT's polynomial is measured on a
sentence encoder (``python -m benchmarks.sentences``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.ir import Activation, Function, Network, activate, form_of
from gemmule.compiler.ir.nodes import GELUS
from gemmule.compiler.quantize.accuracy import perplexity
from gemmule.compiler.quantize.activation import POLYNOMIAL_STEP, with_activation
from gemmule.config import Config
from gemmule.numerics import interpolate, lookup
from gemmule.numerics.ibert import GELU_SCALE, gelu_constants, i_gelu, i_gelu_unit
from gemmule.numerics.table import byte_table, word_table
from gemmule.sw.limits import ACTIVATION
from gemmule.sw.prompts.held_out import target_and_windows
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.architectures import Work, run_architecture

__all__ = ["STUDY", "error_rows", "quality_rows", "time_rows"]

PAPER, REACH = 4.0, 8.0
"""Inputs from minus to plus this, of I-BERT's own table and of the forms' errors."""
WORKS = {"gpt2": Work(seq=128), "bert-base": Work(phase="encode", seq=128)}
WHY = {"table": "rounded to a byte before the function and behind it",
       "word": "rounded to 16 bits before it, lines between 513 words, a byte behind",
       "ibert": "16 bits before it, erf in 222 steps, a byte of a power of two of its own step behind"}
COST = {"table": "an access a row",
        "word": "two, for int16 rows of which the next product reads the high bytes; where a block of them does not "
                "fit, smaller blocks read weights more often",
        "ibert": "an access a row, a few stages more at the end of a command"}


def _gelu(x: np.ndarray) -> np.ndarray:
    return activate(Function.GELU, x)


def error_rows() -> list[Row]:
    """How far each form is from GELU: the polynomial as published, and what the device stores."""
    x = np.linspace(-PAPER, PAPER, 1 << 16)
    codes = np.rint(x / GELU_SCALE).astype(np.int64)
    error = -i_gelu(codes, gelu_constants(GELU_SCALE)) * POLYNOMIAL_STEP - _gelu(codes * GELU_SCALE)
    why = f"inputs to {PAPER:g}, before the last rounding; the device's scale gives erf 222 steps"
    rows = [Row(setting=f"ibert: {name} error of GELU", published=published, here=here, unit="absolute", why=why)
            for name, published, here in (("largest", 0.018, float(np.abs(error).max())),
                                          ("root mean square", 0.0082, float(np.sqrt((error ** 2).mean()))))]
    x = np.linspace(-REACH, REACH, 1 << 16)
    step = REACH / 127
    fine, shift = 2 * REACH / (1 << 15), int(np.ceil(np.log2(step / POLYNOMIAL_STEP)))
    byte = lookup(np.clip(np.rint(x / step), -128, 127), byte_table(_gelu, step, step)) * step
    word = (interpolate(np.rint(x / fine), word_table(lambda x: _gelu(x) + step / 2, fine, step / 256)) >> 8) * step
    power = i_gelu_unit(np.rint(x / GELU_SCALE), shift) * POLYNOMIAL_STEP * 2.0 ** shift
    for name, found in (("table", byte), ("word", word), ("ibert", power)):
        here = float(np.sqrt(((found - _gelu(x)) ** 2).mean()) / step)
        rows.append(Row(setting=f"{name}: root mean square error of what is stored", published=None, here=here,
                        unit=f"steps of {step:.3f}", why=f"inputs to {REACH:g}; {WHY[name]}"))
    return rows


def quality_rows(network: Network, windows: np.ndarray) -> list[Row]:
    """Perplexity with each form that the network's function has, on ``windows`` of tokens [windows, length]."""
    gelu = any(isinstance(node, Activation) and node.function in GELUS for node in network.graph.nodes)
    rows: list[Row] = []
    for name in ACTIVATION if gelu else ACTIVATION[:-1]:
        found = perplexity(with_activation(network, form_of(name)), windows)
        against = found / (rows[0].here if rows else found) - 1
        rows.append(Row(setting=f"{name}: perplexity", published=None, here=found, unit="perplexity",
                        why=f"{against:+.3%} against the table of bytes, {windows.size:,} tokens"))
    return rows


def time_rows(config: Config) -> list[Row]:
    """Cycles and DRAM bytes of a step of GPT-2 and of a sequence of BERT-base."""
    rows = []
    for network, work in WORKS.items():
        for name in ACTIVATION:
            record = run_architecture(architecture(network), config, replace(work, activation=name))
            rows += [Row(setting=f"{name}, {network} at {work.seq}: {what}", published=None, here=record[key],
                         unit=what, why=COST[name]) for key, what in (("cycles", "cycles"), ("dram_bytes", "bytes"))]
    return rows


def _run(config: Config) -> list[Row]:
    return [*error_rows(), *quality_rows(*target_and_windows()), *time_rows(config)]


STUDY = Study(
    title="forms of activation functions", config="base", run=_run,
    source="Kim et al., I-BERT, arXiv 2101.01321, table 1; the quality that they tell is of networks trained with it")
