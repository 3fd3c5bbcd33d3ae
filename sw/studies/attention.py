"""Three ways of attention over a length: scores through DRAM, kept on the device, online by blocks of keys; BERT-base.

The standard way writes scores (int32) and probabilities (uint8) to DRAM and reads them again, what FlashAttention
(Dao et al., 2022) counts as the textbook's traffic; its numbers are the exact way's. Online differs in the last bits.
"""

from __future__ import annotations

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config
from gemmule.sw.architectures import Work, run_architecture
from gemmule.sw.choices import ONLINE_BLOCK
from gemmule.sw.limits import ATTENTION
from gemmule.sw.study import Row, Study

__all__ = ["LENGTHS", "STUDY", "attention_rows"]

LENGTHS = (128, 256, 512)
WHY = {"exact": "a row's scores stay in the accumulator, its probabilities in the scratchpad",
       "standard": "the same numbers through DRAM: 10 bytes a score",
       "online": f"blocks of {ONLINE_BLOCK} keys, the maximum in whole octaves so far; queries in larger blocks"}


def attention_rows(network: Architecture, config: Config, lengths: tuple[int, ...]) -> list[Row]:
    """Cycles and DRAM bytes of each way at each length.

    Raises:
        CompileError: the network does not fit.
    """
    rows = []
    for length in lengths:
        for way in ATTENTION:
            record = run_architecture(network, config, Work(phase="encode", seq=length, attention=way))
            own = next(part["cycles"] for part in record["operators"] if part["name"] == "attention")
            rows += [Row(setting=f"{way}, {length} tokens: {what}", published=None, here=here, unit=unit, why=WHY[way])
                     for what, here, unit in (("whole network", record["cycles"], "cycles"),
                                              ("attention", own, "cycles"), ("DRAM", record["dram_bytes"], "bytes"))]
    return rows


STUDY = Study(
    title="ways of attention over a length, BERT-base", config="base",
    source="the ways of Dao et al., FlashAttention, arXiv 2205.14135; no figure of theirs compares",
    run=lambda config: attention_rows(architecture("bert-base"), config, LENGTHS))
