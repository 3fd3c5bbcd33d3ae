"""What a batch costs on `base`: autoregressive passes of 1 to 32 texts, what further rows of each cost, and how many
texts fit in equal DRAM where caches are reserved, and where they share pages.

    python -m benchmarks.batches passes --out docs/results/batches.json      # by shape, timing only
    python -m benchmarks.batches capacity --out docs/results/batches.json    # texts of the bundled pair, served
    python -m benchmarks.batches texts --out docs/results/batches.json       # methods by batch, with --adaptive

``passes``: SmolLM2-135M by shape, each text behind 256 cached rows, contexts of 512; cycles of a pass with the host's.
With caches in order a launch takes 16 texts, by list (pages of 8 rows in random order) 32. A batch drafts for nothing
here: where a pass of ``rows`` rows of each text takes ``ratio`` times one of a row each, a step must give more than
that many tokens to pay.

``capacity``: 16 completions at once, 96 new tokens each, by `ar`: a cache of 1,024 rows as two contexts of 512, and as
a pool for up to 8 texts.

``texts``: held-out prompts of all categories in turn that begin together, 48 new tokens each, by `ar`, and by methods
that draft up to 3 tokens a step, always or as `--adaptive` decides. `worst_text`: cycles to the end of a text over
those to its end where the batch decodes by `ar`, the largest of all texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import run_part, show
from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.passes.map import MOST_SEQUENCES
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session, rows_of
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.limits import CATEGORIES, DEFAULT
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.serving.arrivals import poisson
from gemmule.sw.serving.plan import ServingPlan
from gemmule.sw.serving.prompts import Prompts
from gemmule.sw.studies.smollm2 import NETWORK
from gemmule.timing import ceil_div

CONTEXT, CACHED, PAGE, SEED = 512, 256, 8, 1
ORDERED, LISTED = (1, 2, 4, 8, 16, 32), (2, 4, 8, 16, 32)
ROWS = (2, 4, 8)
"""Of each text, beside one."""
REQUESTS, NEW_TOKENS, CACHE_ROWS, TEXTS = 16, 96, 1024, 8
TOGETHER, DRAFTING, DRAFTS, TEXT_TOKENS, MOST_PROMPT = (1, 2, 4, 8, 16, 32), ("pld", "draft"), 3, 48, 96


def passed(network: Network, config: Config, batch: int, rows: int, pool: int) -> tuple[int, int]:
    """Cycles of a pass, host included, and bytes of a cached row of one text.

    Raises:
        CompileError: it does not fit.
    """
    launches = 1 if pool else ceil_div(batch, MOST_SEQUENCES)
    texts = batch // launches
    program = compile_network(network, config, rows=rows, batch=texts, tokens=True, context=CONTEXT, pool=pool,
                              checked=False)
    given = Rows.ragged([[1] * rows] * texts, [CACHED] * texts)
    random, first = np.random.default_rng(SEED), program.graph.prefix + 1
    pages = random.permutation(np.arange(-(-first // PAGE), max(1, pool) // PAGE))
    each = -(-(CACHED + rows) // PAGE)
    places = [(pages[i * each:(i + 1) * each, None] * PAGE + np.arange(PAGE)).reshape(-1)[:CACHED + rows]
              for i in range(texts)] if pool else None
    step = program.step(given, len(given), [CACHED] * texts, places)
    simulator = Simulator(config, dram_bytes=1)
    simulator.load(program.launch("pass", NO_DRAM, step.registers))
    result = simulator.run(timing_only=True, indices=program.gathered_by(given, step))
    host = config.host
    return (launches * (int(result.cycles) + host.launch_cycles) + batch * host.step_cycles,
            program.layout.runs * program.layout.row)


def passes(record: dict[str, Any], save: Callable[[], None]) -> None:
    """Every batch."""
    config, name, network = load_config("base"), f"{NETWORK.name}, shape only", by_shape(NETWORK.graph())
    rows: list[dict[str, Any]] = []
    one: dict[tuple[bool, int], int] = {}
    for listed, batch in (*((False, batch) for batch in ORDERED), *((True, batch) for batch in LISTED)):
        pool = (batch * (CONTEXT // PAGE) + 2) * PAGE if listed else 0
        for each in (1, *(() if listed else ROWS)):
            made: dict[str, Any] = {"network": name, "cache": "pages" if listed else "in order", "batch": batch,
                                    "rows": each}
            rows.append(made)
            try:
                cycles, size = passed(network, config, batch, each, pool)
            except CompileError as error:
                made["refused"] = str(error)
                continue
            if each == 1:
                one[listed, batch] = cycles
            made |= {
                "cycles": cycles, "ratio": cycles / one[listed, batch],
                "tokens_per_second": batch * config.host.clock_mhz * 1e6 / cycles,
                "milliseconds": cycles / config.host.clock_mhz / 1000, "kv_bytes": batch * CACHED * size,
                "by_list": cycles / one[False, batch] if listed and (False, batch) in one else None}
            print(made, flush=True)
    record["passes"] = rows
    save()
    show("a pass", [{name: row.get(name, "-") for name in ("network", "cache", "batch", "rows", "cycles", "ratio",
                                                           "tokens_per_second", "milliseconds")} for row in rows])


def capacity(record: dict[str, Any], save: Callable[[], None]) -> None:
    """The same requests with reserved contexts and with pages, in as many rows."""
    config, pair = load_config("base"), bundled_pair(DEFAULT)
    load = poisson(1e6, Prompts(pair).first(["completion"], REQUESTS), NEW_TOKENS, config, SEED)
    found: list[dict[str, Any]] = []
    references: list[list[int]] = []
    for name, batch, pool in (("reserved", CACHE_ROWS // CONTEXT, 0), ("pages", TEXTS, CACHE_ROWS)):
        with ServingPlan(device=config, pair=pair, batch=batch, ahead=True, drafts=3, methods=["ar"],
                         interpreted=True, context=CONTEXT, pool=pool, page=PAGE) as plan:
            references = references or plan.references(load, pair.ends)
            found.append({"cache": name, "batch": batch} | plan.run("ar", load, references, pair.ends))
        record["capacity"] = found
        save()
    show("equal DRAM", [{name: row[name] for name in ("cache", "batch", "kv_bytes", "texts_per_pass", "kv_rows",
                                                      "waste_reserved", "waste_paged", "tokens_per_second", "stopped",
                                                      "equal")} for row in found])


def texts(record: dict[str, Any], save: Callable[[], None]) -> None:
    """Methods by batch, with and without what decides how many candidates pay."""
    config, pair, known = load_config("base"), bundled_pair(DEFAULT), load_categories()
    every = [pair.encode(known[name][at].text)[:MOST_PROMPT] for at in range(7) for name in CATEGORIES]
    found: list[dict[str, Any]] = []
    for batch in TOGETHER:
        prompts, plain = every[:batch], None
        for method, adaptive in (("ar", False), *((name, way) for name in DRAFTING for way in (False, True))):
            drafts = None if method == "ar" else DRAFTS
            with Session(config, pair=pair, interpreted=True, batch=batch,
                         rows=rows_of(batch, DRAFTS) if batch > 1 else None,
                         general=adaptive and batch == 1 and METHODS[method].confident) as session:
                ledger = Ledger(config)
                runs = session.generate_batch(method, prompts, TEXT_TOKENS, drafts, pair.ends, ledger=ledger,
                                              adaptive=adaptive)
                kept = session.target.kv_bytes
            plain = plain or (ledger.cycles, runs)
            tokens, seconds = sum(len(run.tokens) for run in runs), ledger.cycles / (config.host.clock_mhz * 1e6)
            found.append({
                "batch": batch, "method": method, "adaptive": adaptive, "cycles": ledger.cycles,
                "tokens_per_second": tokens / seconds, "milliseconds": seconds * 1000, "kv_bytes": kept,
                "speedup": plain[0] / ledger.cycles, "worst_text": max(
                    run.ledger.cycles / other.ledger.cycles for run, other in zip(runs, plain[1], strict=True)),
                "tokens_per_step": tokens / sum(len(run.steps) for run in runs),
                "equal": [run.tokens for run in runs] == [run.tokens for run in plain[1]]})
            print(found[-1], flush=True)
            record["texts"] = found
            save()
    heads = ("batch", "method", "adaptive", "tokens_per_second", "milliseconds", "kv_bytes", "speedup", "worst_text",
             "equal")
    show("texts that begin together", [{name: row[name] for name in heads} for row in found])


if __name__ == "__main__":
    run_part(__doc__, {"passes": passes, "capacity": capacity, "texts": texts}, "batches", {
        "config": "base", "config_sha256": load_config("base").sha256, "context": CONTEXT, "cached": CACHED,
        "page": PAGE, "seed": SEED, "requests": REQUESTS, "new_tokens": NEW_TOKENS, "cache_rows": CACHE_ROWS})
