"""One layer of an imported model on the RTL and on the model, fed with what the layers before it make of a text.

    python -m benchmarks.layer_rtl --model FILE --layer 11 --out docs/results/layer_rtl.json

The integer interpreter takes a text through the layers before `--layer`; the residual stream that it finds there goes
through this layer, the last norm and the head on `--config`: prompt passes of `--rows` rows, then passes of one row.
Embedding and head are cut to `--vocab` tokens, those of the text among them. Every byte of the DRAM (answers, residual
stream, keys and values), every command's issue and finish cycle and every counter of the Verilog under Verilator must
be the model's; logits and residual stream must be the interpreter's. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, machine, show, write
from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, Embedding, IntegerInterpreter, Network, Rows, layer_part, residuals, signature
from gemmule.compiler.programs.general_program import Answers, GeneralProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.config import Config, ConfigError, load_config
from gemmule.io.progress import working
from gemmule.numerics import split_planes
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.cosim import Report, cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.errors import InputError
from gemmule.sw.text.tokens import parse_tokenizer

TEXT = """A list of primes begins with 2, 3, 5 and 7. To find more of them, write down all numbers up to a limit,
take the first one that is not crossed out, and cross out its multiples:
def sieve(limit): return [n for n in range(2, limit)]"""
DRAM_BYTES = 64 << 20
"""Of the testbench, at least."""


def cut_vocabulary(network: Network, kept: np.ndarray) -> Network:
    """The network with some of its tokens alone, int64 [tokens] in rising order: token i is what ``kept[i]`` was."""
    graph, weights = network.graph, dict(network.weights)
    ends = [node for node in graph.nodes if isinstance(node, Embedding) or node.name == graph.output]
    for node in ends:
        for role, tensor in signature(node).tensors.items():
            name = node.tensors[role]
            weights[name] = np.take(network.weights[name], kept, axis=tensor.shape.index(graph.vocab))
    cut = {node.name: node.model_copy(update={"vocab" if isinstance(node, Embedding) else "columns": len(kept)})
           for node in ends}
    return Network(graph.model_copy(update={
        "vocab": len(kept), "nodes": tuple(cut.get(node.name, node) for node in graph.nodes)}), weights)


def stream_before(network: Network, tokens: np.ndarray, layer: int) -> np.ndarray:
    """The residual stream in front of a layer, int64 [tokens, columns]."""
    name, part, seen = residuals(network.graph)[layer], layer_part(network, (0, layer)), dict[str, np.ndarray]()
    IntegerInterpreter(part).forward(Rows.chain(tokens.tolist(), network.graph.prefix), Cache(part.graph),
                                     seen.__setitem__)
    return seen[name]


class LayerRun:
    """A network of one layer on both devices, pass by pass beside the interpreter."""

    def __init__(self, network: Network, layer: int, config: Config, rows: int, context: int) -> None:
        names = residuals(network.graph)
        self.part = layer_part(network, (layer, 1))
        self.enters, self.leaves = names[0], names[layer + 1]
        self.program: ModelProgram = compile_network(self.part, config, rows=rows, context=context, general=True)
        assert self.program.general
        self.general: GeneralProgram = self.program.general
        size = self.program.base_address + self.program.size
        self.dram = np.zeros(size, dtype=np.uint8)
        self.dram[self.program.base_address:] = self.program.fill(self.part)
        self.model, self.rtl_bytes = Simulator(config, dram_bytes=size), max(DRAM_BYTES, 1 << (size - 1).bit_length())
        self.interpreter, self.cache = IntegerInterpreter(self.part), Cache(self.part.graph)

    def launch(self, stream: np.ndarray) -> tuple[Launch, np.ndarray, np.ndarray]:
        """A pass over rows of the residual stream, the logits and the stream that it must give back."""
        count, first, seen = len(stream), self.cache.length(), dict[str, np.ndarray]()
        rows = Rows.chain([0] * count, first).entering(np.arange(count))
        logits = self.interpreter.forward(rows, self.cache, seen.__setitem__, {self.enters: stream})
        step = self.program.general_step(rows, [first], (0, 1), Answers(rows=count, logits=True, hidden=self._behind))
        base = self.program.symbols["embedding"][0]
        for slot, row in enumerate(stream):
            at = base + (self.general.vocab + slot) * self.general.hidden_row
            planes = np.zeros((2, self.general.hidden_row // 2), dtype=np.uint8)
            planes[:, :len(row)] = split_planes(row)
            grouped = planes.reshape(2, -1, self.program.config.dim).transpose(1, 0, 2)
            self.dram[at:at + self.general.hidden_row] = grouped.reshape(-1)
        for address, content in step.inputs:
            self.dram[address:address + content.size] = content.reshape(-1)
        return (self.general.launch(f"{count} rows behind {first}", self.dram, step.registers), logits,
                seen[self.leaves])

    @property
    def _behind(self) -> int:
        """First slot of the rows that come out."""
        return self.program.max_rows

    def forward(self, stream: np.ndarray, rtl: RtlDevice) -> tuple[Report, bool]:
        """Both devices compared, and whether they say what the interpreter says."""
        case, logits, leaving = self.launch(stream)
        report = cosim(case, self.model, rtl)
        self.dram[:] = np.frombuffer(self.model.read_dram(0, len(self.dram)), dtype=np.uint8)
        count, read = len(stream), self.model.read_dram
        hidden = self.general.read_hidden(read, self._behind + np.arange(count), stream.shape[1])
        exact = np.array_equal(self.general.read_logits(read, count), logits) and np.array_equal(hidden, leaving)
        return report, bool(exact)


def passes(run: LayerRun, stream: np.ndarray, rows: int, single: int, rtl: RtlDevice) -> list[dict[str, Any]]:
    """A row of the table for each pass: all but the last ``single`` rows as a prompt, then these one by one."""
    prompt = len(stream) - single
    cuts, found = [*range(0, prompt, rows), *range(prompt, len(stream) + 1)], []
    for begin, end in zip(cuts, cuts[1:]):
        cached, begun = run.cache.length(), time.perf_counter()
        with working(f"{end - begin} rows behind {cached} cached", least=1.0):
            report, exact = run.forward(stream[begin:end], rtl)
        if report.text:
            console.print(report.text)
        found.append({
            "pass": "prompt" if begin < prompt else "decode", "rows": end - begin, "cached": cached,
            "commands": len(report.seen.issue), "cycles": report.seen.cycles, "bytes": len(run.dram),
            "bytes_different": report.byte_differences, "cycles_different": report.cycle_differences,
            "counters_different": report.counter_differences, "interpreter_equal": exact,
            "seconds": round(time.perf_counter() - begun, 1)})
    return found


def differs(row: dict[str, Any]) -> bool:
    """Whether a pass was not the same everywhere."""
    return any(row[name] for name in row if name.endswith("_different")) or not row["interpreter_equal"]


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what was asked for and write it.

    Raises:
        CompileError, InputError: the file, the layer or the sizes do not fit; the message says what to change.
    """
    file = load_model(args.model)
    graph = file.network.graph
    if not 0 <= args.layer < graph.layers:
        raise InputError(f"--layer must be from 0 to {graph.layers - 1}, not {args.layer}")
    if file.tokenizer is None:
        raise InputError(f"--model must have a tokenizer, which {args.model} lacks: import it with one")
    text = np.array(parse_tokenizer(file.tokenizer, str(args.model), graph.vocab).encode(TEXT).ids)
    if not 1 <= args.single < len(text):
        raise InputError(f"--single must be from 1 to {len(text) - 1}, the text's tokens less one, not {args.single}")
    others = np.setdiff1d(np.arange(graph.vocab), text)[:max(args.vocab - len(np.unique(text)), 0)]
    kept = np.union1d(text, others)
    network, config = cut_vocabulary(file.network, kept), load_config(args.config)
    with working(f"layers before layer {args.layer}, by the interpreter", least=1.0):
        stream = stream_before(network, np.searchsorted(kept, text), args.layer)
    run = LayerRun(network, args.layer, config, args.rows, graph.prefix + len(text))
    with RtlDevice(config, dram_bytes=run.rtl_bytes) as rtl:
        rows = passes(run, stream, args.rows, args.single, rtl)
    write(args.out, {
        "command": "python -m benchmarks.layer_rtl", "machine": machine(), "model": file.sha256,
        "made": file.made.model_dump(mode="json"), "setting": {
            "layer": args.layer, "config": args.config, "rows": args.rows, "vocab": len(kept), "tokens": len(text),
            "prefix": graph.prefix}, "rows": rows})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="model file of gemmule import, with a tokenizer")
    parser.add_argument("--layer", type=int, required=True)
    parser.add_argument("--config", default="base")
    parser.add_argument("--rows", type=int, default=16, help="rows of a prompt pass at most")
    parser.add_argument("--single", type=int, default=4, help="passes of one row behind the prompt")
    parser.add_argument("--vocab", type=int, default=4096, help="tokens that embedding and head keep")
    parser.add_argument("--out", type=Path, default=Path("build/layer_rtl.json"))
    args = parser.parse_args()
    try:
        rows = measure(args)
    except (CompileError, ConfigError, InputError) as error:
        parser.error(str(error))
    show(f"layer {args.layer} on {args.config}: model and RTL", [{
        "pass": row["pass"], "rows": row["rows"], "cached": row["cached"], "commands": row["commands"],
        "cycles": row["cycles"], "bytes": row["bytes"],
        "different": "something" if differs(row) else "nothing", "seconds": row["seconds"]} for row in rows])
    if any(differs(row) for row in rows):
        sys.exit("RTL, model and interpreter differ")
    console.print("every byte, cycle and counter the same; logits and residual stream the interpreter's")


if __name__ == "__main__":
    main()
