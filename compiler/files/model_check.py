"""A model file that was just written, read back and tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows

__all__ = ["check_written"]


def check_written(path: Path, network: Network, tokens: list[int]) -> None:
    """Load the file (digest, shapes and ranges of all tensors), run one pass, compare with the network it was made of.

    Raises:
        CompileError: it cannot be loaded, its scales are not finite, or it gives other numbers.
    """
    read = load_model(path).network
    graph = read.graph
    for node in graph.nodes:
        scales = np.atleast_1d(np.asarray(node.type.scale))
        if not (np.isfinite(scales).all() and (scales > 0).all()):
            raise CompileError(f"{node.name}: scales must be finite and above 0, not {scales.min()}: check the "
                               "checkpoint's weights")
    rows = Rows.chain(tokens, graph.prefix)
    found, wanted = (IntegerInterpreter(one).forward(rows, Cache(graph)) for one in (read, network))
    if not np.array_equal(found, wanted):
        raise CompileError("what was written must compute what was quantised, and does not: is the disk full or "
                           "damaged? import again")
