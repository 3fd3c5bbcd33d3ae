"""Passes of a known architecture by shape: compiled without weights, timed without data."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ideal import ideal_by_operation
from gemmule.compiler.importers.architectures import Architecture
from gemmule.compiler.ir import Graph, Network, TokenPruning
from gemmule.compiler.kept import compile_encoder_kept, compile_kept
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.passes.map import most_rows
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.search.decoder import compile_best
from gemmule.config import Config
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.choices import choose
from gemmule.sw.workloads.passes import EncoderPasses, Passes, encoding_cycles
from gemmule.sw.workloads.pruned_cycles import rows_read
from gemmule.sw.workloads.pruned_passes import Beside, beside, check_pruned, compiled_for, passes_of
from gemmule.sw.workloads.searched import Searched, searched_layer
from gemmule.sw.workloads.token_pruning import schedule_record

__all__ = ["Work", "phase_of", "run_architecture", "sweep_values", "swept"]

GROUP = 32
"""Rows of depth that share an int4 scale, as `gemmule import` has them; on a larger mesh as many as it has."""
MOST_GROUP = 1 << 15
MOST_VALUES = 64
ALONE = Beside()
"""No schedule."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is run of a network.

    Attributes:
        phase: ``decode``, one pass of ``rows`` new rows behind ``seq`` cached ones, ``prefill`` of ``seq`` tokens,
            or, of an encoder, ``encode``, a sequence of ``seq`` tokens; ``auto``: decode or encode.
        rows: new rows of a pass; 0: 1 of decode, of prefill as many as the device takes up to 16.
        bits, head_bits: of the layers' weights and of the logits'.
        group: rows of depth that share an int4 scale; 0: :data:`GROUP`, or the mesh's where it has more.
        context: most positions that the program takes; 0: all of the network, of prefill its tokens.
        effort: mappings to try.
        attention: ``exact``, ``standard`` or ``online``.
        softmax: its exponential.
        activation: the form of activation functions.
        fusion: ``off``: every operator's result goes to DRAM and comes back.
        search: of an encoder, how the mapping of a layer's phases is found: the first that fits, or branch and bound.
        pruning: of a decoder the schedule of its cache, of an encoder the one by which rows leave.
    """

    phase: str = "auto"
    seq: int = 128
    rows: int = 0
    batch: int = 1
    bits: str = "int8"
    head_bits: str = "int8"
    group: int = 0
    context: int = 0
    effort: int = 1
    attention: str = "exact"
    softmax: str = "exact"
    activation: str = "table"
    fusion: str = "on"
    search: str = "first"
    pruning: Pruning | TokenPruning | None = None


def _integers(architecture: Architecture, config: Config, work: Work) -> tuple[Network, int]:
    """The network in integers, and the rows that share an int4 scale (0: none is int4).

    Raises:
        InputError: a group is not a power of two, or smaller than the mesh takes at once.
    """
    group = work.group or max(GROUP, config.dim)
    if group < config.dim or group & (group - 1) or group > MOST_GROUP:
        raise InputError(f"--group must be a power of two from dim = {config.dim} to {MOST_GROUP}, not {group}")
    bits, head_bits = (4 if found == "int4" else 8 for found in (work.bits, work.head_bits))
    graph = choose(Network(architecture.graph(), {}), None, None, work.activation).graph
    network = by_shape(graph, bits=bits, head_bits=head_bits, group=group)  # type: ignore[arg-type]
    return choose(network, work.attention, work.softmax), group if 4 in (bits, head_bits) else 0


def _positions(graph: Graph, work: Work, rows: int) -> int:
    """Most positions of the program.

    Raises:
        InputError: ``context`` or ``seq`` is out of range.
    """
    most = graph.whole_positions
    if not 0 <= work.context <= most:
        raise InputError(f"--context must be from 1 to {most}, the positions that the network sees, not {work.context}")
    most = work.context or most
    low, high = (0, most - rows) if work.phase == "decode" else (1, most)
    if not low <= work.seq <= high:
        raise InputError(f"--seq must be from {low} to {high} ({most:,} positions at most), not {work.seq}")
    return work.context or (most if work.phase == "decode" else work.seq)


def run_architecture(architecture: Architecture, config: Config, work: Work, *, keep: bool = True) -> dict[str, Any]:
    """Compile and time; the record of `gemmule run arch` without its head. ``keep``: the program, in the cache.

    Raises:
        CompileError: no importer knows the network, or it does not fit the device.
        InputError: positions out of range.
    """
    begin = time.perf_counter()
    network, group = _integers(architecture, config, work)
    graph = network.graph
    work = replace(work, phase=phase_of(architecture.name, work.phase, graph.encoder))
    if isinstance(work.pruning, Pruning):
        check_pruned(work.pruning, phase=work.phase, seq=work.seq, rows=work.rows or 1, batch=work.batch,
                     attention=work.attention, fusion=work.fusion)
    searched = _searched(network, config, work, keep)
    program, rows, most = _compiled(network, config, work, keep, searched.mapping if searched else None)
    others = Beside()
    if isinstance(work.pruning, Pruning) and isinstance(program, ModelProgram):
        others = beside(network, _name(graph), program, work.pruning,
                        lambda: _dense(network, config, replace(work, rows=rows), keep), keep=keep)
    warm = time.perf_counter()
    _measured(program, network, [(1, 0, 0)] if graph.encoder else [(rows, 0, 1)])  # loads the compiled engine
    compiled = time.perf_counter()
    passes = _measured(program, network, _steps(work, rows), work, others)
    simulated = time.perf_counter()
    record, host = passes.record() | _pruned(passes, network, config, work, keep), config.host
    host_cycles = record["passes"] * (host.launch_cycles + host.step_cycles)
    tokens = work.batch * (rows if work.phase == "decode" else work.seq)
    spent = (record["cycles_with_selection"] or record["cycles"]) + host_cycles
    return record | {
        "architecture": architecture.name, "source": architecture.source, "phase": work.phase, "seq": work.seq,
        "rows": rows, "batch": work.batch, "bits": work.bits, "head_bits": work.head_bits, "group": group,
        "context": most, "effort": work.effort, "search": searched.record if searched else None,
        "attention": work.attention, "softmax": work.softmax, "activation": work.activation,
        "fusion": work.fusion, "prune": schedule_record(work.pruning),
        "network_layers": graph.layers,
        "parameters": architecture.numbers, "macs": passes.macs, "network_bytes": passes.ideal_bytes,
        "clock_mhz": host.clock_mhz, "host_cycles": host_cycles,
        "tokens_per_second": tokens * host.clock_mhz * 1e6 / spent,
        "compile_seconds": warm - begin, "simulation_seconds": simulated - compiled,
        "operators": _operators(record["operators"], graph, work, rows, passes)}


def _searched(network: Network, config: Config, work: Work, keep: bool) -> Searched | None:
    """The mapping of an encoder's layer, if one is searched.

    Raises:
        InputError: an option does not go with a search.
    """
    if work.search == "first":
        return None
    if not network.graph.encoder:
        raise InputError(f"--search must be first for a decoder, not {work.search}: use --effort")
    for option, needed, value in (("--attention", "exact", work.attention), ("--fusion", "on", work.fusion)):
        if value != needed:
            raise InputError(f"--search {work.search} goes with {option} {needed}, not {value}: leave one out")
    if work.pruning:
        raise InputError(f"--search {work.search} goes without --prune, whose layers differ: leave one out")
    _positions(network.graph, work, work.seq)
    return searched_layer(network, config, work.seq, work.search, keep)


def _pruned(passes: Passes | EncoderPasses, network: Network, config: Config, work: Work,
            keep: bool) -> dict[str, Any]:
    """What a schedule does, beside the dense network."""
    found = passes.pruned()
    if isinstance(passes, EncoderPasses) and work.pruning:
        dense, _, _ = _compiled(network, config, replace(work, pruning=None), keep, None)
        assert isinstance(dense, EncoderProgram)
        found["cycles_dense"] = encoding_cycles(dense, network, work.seq)
    return found


def _name(graph: Graph) -> str:
    """Of a network by shape, for the programs that are kept."""
    return f"by shape {hashlib.sha256(graph.model_dump_json().encode()).hexdigest()}"


def phase_of(name: str, phase: str, encoder: bool) -> str:
    """The phase; ``auto`` is decode, or encode of an encoder.

    Raises:
        InputError: it is not one of the network's.
    """
    if phase == "auto":
        return "encode" if encoder else "decode"
    if (phase == "encode") is not encoder:
        raise InputError(f"--phase must be {'encode' if encoder else 'prefill or decode'} for {name}, "
                         f"{'an encoder' if encoder else 'a decoder'}, not {phase}")
    return phase


def _compiled(network: Network, config: Config, work: Work, keep: bool,
              mapping: EncoderMapping | None) -> tuple[ModelProgram | EncoderProgram, int, int]:
    """The program, new rows of a pass, and most positions. Where no rows are asked for: as many as compile."""
    graph = network.graph
    name = _name(graph)
    if work.phase == "encode":
        if work.batch != 1:
            raise InputError(f"--batch must be 1 for an encoder, which takes a sequence a pass, not {work.batch}")
        most = _positions(graph, work, work.seq)
        how: dict[str, Any] = {"sequence": work.seq, "standard": work.attention == "standard",
                               "fused": work.fusion == "on", "mapping": mapping, "pruning": work.pruning}
        made = compile_encoder_kept(network, name, config, **how) if keep else compile_encoder(network, config, **how)
        return made, work.seq, most
    rows = work.rows or (1 if work.phase == "decode" else max(1, min(most_rows(graph, config), work.seq)))
    most = _positions(graph, work, rows)
    while True:
        options: dict[str, Any] = {
            "rows": rows, "batch": work.batch, "context": most, "tokens": True, "effort": work.effort,
            "fused": work.fusion == "on", "standard": work.attention == "standard"}
        if isinstance(work.pruning, Pruning):
            options |= compiled_for(work.pruning)
        try:
            return (compile_kept(network, name, config, **options) if keep else compile_best(
                network, config, **options)), rows, most
        except CompileError:
            if work.rows or rows == 1:
                raise
            rows //= 2


def _dense(network: Network, config: Config, work: Work, keep: bool) -> ModelProgram:
    """The program that loads all values."""
    program, _, _ = _compiled(network, config, replace(work, pruning=None), keep, None)
    assert isinstance(program, ModelProgram)
    return program


def _measured(program: ModelProgram | EncoderProgram, network: Network,
              steps: list[tuple[int, int, int]], work: Work | None = None,
              others: Beside = ALONE) -> Passes | EncoderPasses:
    """Passes of (new rows, cached ones, rows with answers), by the schedule of ``work``."""
    if isinstance(program, EncoderProgram):
        with EncoderPasses(program, network, "model", 0, True) as encoded:
            for rows, _, _ in steps:
                encoded.run(rows)
        return encoded
    pruning = work.pruning if work and isinstance(work.pruning, Pruning) else None
    with passes_of(program, network, pruning, others, "model", 0, True) as passes:
        for rows, cached, wanted in steps:
            passes.fill_cache(cached)
            passes.run(rows, wanted)
    return passes


def _steps(work: Work, rows: int) -> list[tuple[int, int, int]]:
    """(new rows, cached ones, rows with answers) of each pass."""
    if work.phase == "decode":
        return [(rows, work.seq, rows)]
    if work.phase == "encode":
        return [(rows, 0, 0)]
    return [(min(rows, work.seq - at), at, 1 if at + rows >= work.seq else 0) for at in range(0, work.seq, rows)]


def _operators(found: list[dict[str, Any]], graph: Graph, work: Work, rows: int,
               passes: Passes | EncoderPasses) -> list[dict[str, Any]]:
    """With what each operation multiplies and must move."""
    left, heads = (passes.left, passes.program.heads_by_layer) if isinstance(passes, EncoderPasses) else ((), ())
    steps = _steps(work, rows)
    if isinstance(work.pruning, Pruning):
        steps = [(rows, rows_read(work.pruning, work.seq), rows)]
    ideals = [ideal_by_operation(graph, count, cached, wanted=wanted, tokens=not graph.encoder, batch=work.batch,
                                 left=left, heads=heads) for count, cached, wanted in steps]
    ran = {part["name"]: part for part in found}
    names = dict.fromkeys([*ran, *(name for needed in ideals for name, part in needed.items() if part.bytes)])
    nothing = dict.fromkeys(("cycles", "matrix_cycles", "vector_cycles", "weight_bytes"), 0)
    return [{"name": name, **ran.get(name, nothing),
             "macs": sum(needed[name].macs for needed in ideals if name in needed),
             "network_bytes": sum(needed[name].bytes for needed in ideals if name in needed)} for name in names]


def sweep_values(architecture: Architecture, work: Work, what: str, text: str) -> list[int]:
    """The lengths that ``text`` names, or some about the network's own.

    Raises:
        InputError: no positive whole numbers, or too many.
    """
    if text:
        parts = text.split(",")
        if len(parts) > MOST_VALUES or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            raise InputError(f"--values must be 1 to {MOST_VALUES} positive whole numbers with commas, not {text!r}")
        return [int(part) for part in parts]
    graph = architecture.graph()
    if what == "seq":
        most = (work.context or graph.whole_positions) - 16
        return [length for length in (64, 256, 1024, 4096, 16384) if length <= most]
    if what == "rows":
        return [1, 2, 4, 8]
    size = graph.layers if what == "layers" else graph.nodes[0].columns
    return [size // 2, size, 2 * size]


def swept(architecture: Architecture, config: Config, work: Work, what: str, value: int) -> dict[str, Any]:
    """One point of a sweep: what a run with that length takes, in short.

    Raises:
        CompileError, InputError: as of :func:`run_architecture`.
    """
    if what in ("layers", "hidden"):
        architecture = architecture.resized(what, value)
    else:
        work = replace(work, **{what: value})  # type: ignore[arg-type]
    record = run_architecture(architecture, config, work)
    tokens = work.batch * (record["rows"] if record["phase"] == "decode" else work.seq)
    kept = ("phase", "cycles", "milliseconds", "macs", "network_bytes", "utilization", "roofline_fraction",
            "parameters")
    return {"value": value, **{key: record[key] for key in kept},
            "operations_per_byte": 2 * record["macs"] / record["network_bytes"],
            "cycles_per_token": record["cycles"] / tokens,
            "cycles_by_operator": {part["name"]: part["cycles"] for part in record["operators"]}}
