"""Exponentials of softmax: what each costs a model in perplexity, and a pass in cycles and DRAM bytes.

Perplexity is the bundled target's, as its integer interpreter computes it, on the completion prompts, which no training
saw; the device has those numbers bit for bit. Online attention of decoders is the interpreter's alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.ir import Network
from gemmule.compiler.quantize.accuracy import perplexity
from gemmule.config import Config
from gemmule.sw.limits import SOFTMAX
from gemmule.sw.models.choices import ONLINE_BLOCK
from gemmule.sw.prompts.held_out import target_and_windows
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.architectures import Work, run_architecture

__all__ = ["STUDY", "perplexities"]

CACHED = (128, 512)


def perplexities(network: Network, windows: np.ndarray, exponentials: Sequence[str] = SOFTMAX) -> list[Row]:
    """Of each of the ``exponentials``, two-pass and online, on ``windows`` of tokens [windows, length]."""
    from gemmule.compiler.ir import softmax_of

    rows, exact = [], 0.0
    for block in (None, ONLINE_BLOCK):
        for name in exponentials:
            found = perplexity(network.with_softmax(softmax_of(name), block), windows)
            exact = exact or found
            rows.append(Row(
                setting=f"{name}{f', online by {block} keys' if block else ''}: perplexity", published=None, here=found,
                unit="perplexity", why=f"{found / exact - 1:+.3%} against the device's own, {windows.size:,} tokens"))
    return rows


def _run(config: Config) -> list[Row]:
    rows = perplexities(*target_and_windows())
    for cached in CACHED:
        for name in SOFTMAX:
            record = run_architecture(architecture("gpt2"), config, Work(seq=cached, softmax=name))
            rows += [Row(setting=f"{name}, GPT-2 behind {cached}: {what}", published=None, here=record[key], unit=what,
                         why="an exponential a lane and cycle, whichever it is")
                     for key, what in (("cycles", "cycles"), ("dram_bytes", "bytes"))]
    return rows


STUDY = Study(
    title="exponentials of softmax", config="base", run=_run,
    source="Kim et al., I-BERT, arXiv 2101.01321; Stevens et al., Softermax, DAC 2021; their tasks are others")
