"""SmolLM2 with values that no probability meets left out: how well it predicts a text, bytes, and cycles of a pass.

    python -m benchmarks.pruned_values quality --out docs/results/pruned_values.json
    python -m benchmarks.pruned_values cycles --out docs/results/pruned_values.json

``quality``: perplexity of windows of 1,024 tokens, prose and code that calibration does not see, over that of the same
integers with all values (docs/results/pruning.json), by the least probability that counts. *Met* are the values that a
row has to load, those that any of the heads that share a KV head meets: of those that it sees, the mean over rows,
layers and KV heads. ``cycles``: a pass of one row and of 8 rows behind cached rows of such texts, on `base` with
memories for lists of that length, by the device with data. The cached rows are those of a text with all values.
Finished rows are kept in --out and not run again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import run_part, show
from benchmarks.pruning import HALF, LISTS, OBSERVED, windows
from benchmarks.smollm2.model import model_path, pair_of
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Pages, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.search.narrow import chosen_program
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.kv.selected import row_bytes
from gemmule.sw.models.placed import Placed
from gemmule.sw.workloads.pruned import losses
from gemmule.sw.workloads.values_passes import saved_bytes

LEAST = (1, 2, 4)
CONTEXTS, ROWS, CHUNK = (512, 1024, 2048), (1, 4, 8), 128
TIMED = (None, 1)
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
Record = dict[str, Any]


class Counting(IntegerInterpreter):
    """Counts what rows see and meet. Probabilities of a prefixed network come head by head."""

    met: list[np.ndarray]
    """Of the heads of a KV head so far, which columns are not 0."""
    counted = np.zeros(2, dtype=np.int64)
    """Values seen, and met; of all interpreters."""

    def __init__(self, network: Network, pages: Pages | None = None, values: int = 1, below: float = 0.0) -> None:
        super().__init__(network, pages, values, below)
        self.met, node = [], network.graph.attentions[0]
        self.share = node.heads // node.kv_heads

    def _met(self, probabilities: np.ndarray) -> np.ndarray:
        kept = super()._met(probabilities)
        self.met.append(kept != 0)
        if len(self.met) == self.share:
            rows, columns = kept.shape
            seen = rows * (columns - rows) + rows * (rows + 1) // 2
            self.counted += seen, int(np.any(self.met, axis=0).sum())
            self.met = []
        return kept


def quality(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` threshold by threshold."""
    network, texts = load_model(model_path("int8")).network, windows()
    dense = json.loads((RESULTS / "pruning.json").read_text())["dense"]
    rows = record.setdefault("quality", [])
    for least in LEAST:
        if any(row["values"] == least for row in rows):
            continue
        Counting.counted[:] = 0
        found = {kind: [losses(network, window, Pruning(values=least), OBSERVED, interpreter=Counting)
                        for window in some] for kind, some in texts.items()}
        worse = {kind: [part.nats - np.array(before) for part, before in zip(found[kind], dense[kind], strict=True)]
                 for kind in found}
        every = [part for parts in worse.values() for part in parts]
        seen, met = Counting.counted.tolist()
        rows.append({"values": least, "met": met / seen,
                     "dropped_probability": float(np.mean([part.dropped for some in found.values() for part in some])),
                     "perplexity": _more(every), f"from_{HALF}": _more([part[HALF:] for part in every]),
                     **{kind: _more(parts) for kind, parts in worse.items()}})
        rows.sort(key=lambda row: row["values"])
        save()
    show("perplexity over that of all values", rows)


def _more(differences: list[np.ndarray]) -> float:
    """Share by which perplexity rises."""
    return float(np.exp(np.mean([part.mean() for part in differences])) - 1)


def cycles(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` text by text."""
    config = Config.model_validate(load_config("base").model_dump() | {"name": "base-long-lists", **LISTS})
    runs = record.setdefault("runs", [])
    placed = {least: pair_of("int8").target(config, 0, pruning=Pruning(values=least) if least else None)
              for least in TIMED}
    network = placed[None].network
    for kind, some in windows(CONTEXTS[-1] + max(ROWS)).items():
        if any(run["text"] == kind for run in runs):
            continue
        tokens, first, cache = some[0].tolist(), network.graph.prefix, Cache(network.graph)
        interpreter, made = IntegerInterpreter(network), list[Record]()
        for at in range(0, CONTEXTS[-1], CHUNK):
            interpreter.forward(Rows.chain(tokens[at:at + CHUNK], at).behind(first), cache)
            if at + CHUNK in CONTEXTS:
                context = at + CHUNK
                made += [{"text": kind, "context": context, "rows": rows, "values": least}
                         | _pass(placed[least], cache, tokens[context:context + rows], context)
                         for rows in ROWS for least in TIMED]
        runs += made
        save()
    record["cycles"] = _means(runs)
    save()
    show(f"a pass of SmolLM2 on {config.name}", record["cycles"])


def _pass(placed: Placed, cache: Cache, tokens: list[int], context: int) -> Record:
    """A pass behind cached rows, by the program that a session takes."""
    program, graph = placed.program, placed.network.graph
    device = Simulator(program.config, dram_bytes=program.base_address + len(placed.dram))
    device.write_dram(program.base_address, placed.dram.tobytes())
    for number, node in enumerate(graph.attentions):
        parts = (part.reshape(-1, node.kv_heads, node.head_dim) for part in cache.contents(node.name))
        for at, content in program.layout.contents(number, *parts):
            device.write_dram(program.symbols[CACHE][0] + at, content.tobytes())
    ran = chosen_program(placed.narrow, len(tokens), graph.prefix + context) or program
    rows = Rows.chain(tokens, context).behind(graph.prefix)
    step = ran.step(rows, len(rows))
    for address, content in step.inputs:
        device.write_dram(address, content.tobytes())
    device.load(ran.launch("pass", NO_DRAM, step.registers))
    result = device.run()
    saved = saved_bytes(ran, [result], graph.prefix + context)
    return {"cycles": int(result.cycles), "load_bytes": int(result.dram_bytes["load"]),
            "kv_bytes": row_bytes(graph) * context - saved, "kv_bytes_dense": row_bytes(graph) * context,
            "tokens": ran.tokens_of(device.read_dram, rows, len(rows))}


def _means(runs: list[Record]) -> list[Record]:
    """Over texts. With least probability 1 tokens must be those of all values."""
    found = []
    for context in CONTEXTS:
        for rows in ROWS:
            of = {least: [run for run in runs if (run["context"], run["rows"], run["values"]) == (context, rows, least)]
                  for least in TIMED}
            assert [run["tokens"] for run in of[1]] == [run["tokens"] for run in of[None]]
            mean = {least: {key: float(np.mean([run[key] for run in some])) for key in (
                "cycles", "load_bytes", "kv_bytes", "kv_bytes_dense")} for least, some in of.items()}
            for least, one in mean.items():
                found.append({
                    "context": context, "rows": rows, "values": least, "cycles": round(one["cycles"]),
                    "kv_bytes": one["kv_bytes"] / one["kv_bytes_dense"],
                    "values_loaded": 2 * one["kv_bytes"] / one["kv_bytes_dense"] - 1,
                    "load_bytes": round(one["load_bytes"]), "speedup": mean[None]["cycles"] / one["cycles"]})
    return found


PARTS = {"quality": quality, "cycles": cycles}


def main() -> None:
    run_part(__doc__, PARTS, "pruned-values", {"model": "smollm2", "weights": "int8"})


if __name__ == "__main__":
    main()
