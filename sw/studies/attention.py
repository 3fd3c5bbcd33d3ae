"""Three ways of attention over a length: scores through DRAM, kept on the device, online by blocks of keys.

The standard way writes scores (int32) and probabilities (uint8) to DRAM and reads them again, what FlashAttention
(Dao et al., 2022) counts as the textbook's traffic; its numbers are the exact way's. Online differs in the last bits.
"""

from __future__ import annotations

from dataclasses import replace

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config
from gemmule.sw.limits import ATTENTION
from gemmule.sw.models.choices import ONLINE_BLOCK
from gemmule.sw.prompts.held_out import target_and_windows
from gemmule.sw.studies import Row, Study
from gemmule.sw.studies.softmax import perplexities
from gemmule.sw.workloads.architectures import Work, run_architecture

__all__ = ["LENGTHS", "STUDY", "WORKS", "attention_rows", "decoder_rows"]

LENGTHS = (128, 512)
WHY = {"exact": "a row's scores stay in the accumulator, its probabilities in the scratchpad",
       "standard": "the same numbers through DRAM: 10 bytes a score",
       "online": f"blocks of {ONLINE_BLOCK} keys, the maximum in whole octaves so far; queries in larger blocks"}
WORKS = {"a token behind {}": [Work(phase="decode", seq=cached) for cached in (128, 512, 1008)],
         "a prompt of {}": [Work(phase="prefill", seq=256)]}
DECODER_WHY = WHY | {
    "standard": "the same numbers through DRAM, in whole blocks of positions: 10 bytes a score",
    "online": f"blocks of {ONLINE_BLOCK} keys, each seen once, the maximum in whole octaves so far"}


def attention_rows(network: Architecture, config: Config, lengths: tuple[int, ...]) -> list[Row]:
    """Cycles and DRAM bytes of an encoder, each way at each length.

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


def decoder_rows(network: Architecture, config: Config, works: dict[str, list[Work]]) -> list[Row]:
    """The same of passes over a cache.

    Raises:
        CompileError: the network does not fit.
    """
    rows = []
    for what, work in ((name, work) for name, each in works.items() for work in each):
        for way in ATTENTION:
            record = run_architecture(network, config, replace(work, attention=way))
            rows += [Row(setting=f"{way}, {network.name}, {what.format(work.seq)}: {part}", published=None, here=here,
                         unit=unit, why=DECODER_WHY[way])
                     for part, here, unit in (("cycles", record["cycles"], "cycles"),
                                              ("DRAM", record["dram_bytes"], "bytes"))]
    return rows


def _run(config: Config) -> list[Row]:
    quality = perplexities(*target_and_windows(), ("exact",))
    return [*attention_rows(architecture("bert-base"), config, LENGTHS),
            *decoder_rows(architecture("gpt2"), config, WORKS), *quality]


STUDY = Study(
    title="ways of attention over a length", config="base", run=_run,
    source="the ways of Dao et al., FlashAttention, arXiv 2205.14135; no figure of theirs compares")
