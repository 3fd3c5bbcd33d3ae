"""Operators fused or not: what keeping values on the device between them is worth, a step, a prompt and a sequence.

Without fusion every product writes its int32 sums to DRAM and what follows reads them, every norm, activation, context
and residual its int8 or int16 result: a kernel an operator, as frameworks run them one by one. The output is the same.
"""

from __future__ import annotations

from dataclasses import replace

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config
from gemmule.sw.limits import FUSION
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.architectures import Work, run_architecture

__all__ = ["STUDY", "fusion_rows"]

WORKS = {"GPT-2, a token behind 128": ("gpt2", Work(seq=128)),
         "GPT-2, a prompt of 64": ("gpt2", Work(phase="prefill", seq=64)),
         "BERT-base, 128 tokens": ("bert-base", Work(phase="encode", seq=128))}


def fusion_rows(network: Architecture, config: Config, name: str, work: Work) -> list[Row]:
    """Cycles and DRAM bytes with and without.

    Raises:
        CompileError: the network does not fit.
    """
    rows: list[Row] = []
    for fusion in FUSION:
        record = run_architecture(network, config, replace(work, fusion=fusion))
        for what, here, unit in (("cycles", record["cycles"], "cycles"), ("DRAM", record["dram_bytes"], "bytes")):
            before = next((row.here for row in rows if row.unit == unit), here)
            why = "values stay on the device" if fusion == "on" else f"{here / before - 1:+.1%}: results out and back"
            rows.append(Row(setting=f"{name}, fusion {fusion}: {what}", published=None, here=here, unit=unit, why=why))
    return rows


STUDY = Study(
    title="operators fused or not", config="base",
    source="no figure of others: networks, sizes and what a kernel takes differ",
    run=lambda config: [row for name, (network, work) in WORKS.items()
                        for row in fusion_rows(architecture(network), config, name, work)])
