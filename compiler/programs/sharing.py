"""A program of one network that goes on in the cache of another one's: of the same network with other weights, say.

Keys and values must mean the same to both: the same attentions, with the same scales. Weights, answers and all else
are its own.
"""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.passes.fit import run_fitting
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.programs.general import GeneralEntry
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.pass_entry import PassEntry

__all__ = ["compile_in_cache"]


def compile_in_cache(network: Network, program: ModelProgram, *, rows: int, base_address: int,
                     general: bool = False) -> ModelProgram:
    """Compile passes of up to ``rows`` new rows of each sequence of ``program``, in its cache.

    ``general``: as of :func:`gemmule.compiler.compile.compile_network`. It moves no rows of the cache.

    Raises:
        CompileError: it does not fit, or the networks' keys and values are not alike.
    """
    config = program.config
    ours, theirs = ([(node.kv_heads, node.head_dim, node.prefix, graph.by_name[node.key].type,
                      graph.by_name[node.value].type) for node in graph.attentions]
                    for graph in (network.graph, program.graph))
    if ours != theirs or program.pool:
        raise CompileError("a cache is shared by networks with the same attentions and scales, whose rows stand in "
                           "order: give the program a cache of its own")
    plain = PassEntry(ModelProgram, network, config, rows=rows, batch=program.batch, context=program.max_positions,
                      tokens=True, cache=program.layout)
    run_fitting(plain)
    linker = Linker(config, {CACHE: program.symbols[CACHE]})
    linker.add(plain)
    linker.share(plain.lowered)
    wide = GeneralEntry(plain) if general else None
    if wide:
        run(wide, "lower", "waits")
        linker.add(wide)
        linker.share(wide.lowered)
    table = linker.table(base_address)
    plain.constants = linker.constants
    plain.general = linker.link(wide, table) if wide else None
    return linker.link(plain, table)
