"""Passes of the bundled target on `base` with cache rows in order and by list (pages): what the list costs.

    python -m benchmarks.pages --out docs/results

With data, since they say which rows a list names; pages stand in the pool in an order drawn at random.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from gemmule import __version__
from gemmule.compiler.compile import compile_network
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.runtime import PAGE, LoadedModel
from gemmule.sw.kv.paged import PagedKV
from gemmule.sw.limits import DEFAULT, MODELS_FOLDER
from gemmule.sw.models.bundled import bundled_file

ROWS, POOL, SEED = 8, 4096, 1
PASSES = ((1, 0), (1, 64), (1, 512), (8, 512), (1, 900))
"""(new rows, cached ones)"""


def measure() -> dict[str, Any]:
    """Every pass by both programs."""
    config, network = load_config("base"), load_model(bundled_file(MODELS_FOLDER / DEFAULT, "target")).network
    random, passes = np.random.default_rng(SEED), []
    models = []
    for pool in (0, POOL):
        program = compile_network(network, config, rows=ROWS, tokens=True, pool=pool)
        models.append(LoadedModel("target", program, program.fill(network), open_device("model", config, program.size)))
    for rows, context in PASSES:
        cycles = []
        for model in models:
            kv = model.kv()
            if isinstance(kv, PagedKV):
                pages = random.permutation(POOL // PAGE)
                kv.rows = (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)[:context].tolist()
                kv.pool.share(kv.rows)
            else:
                kv.append(context)
            cycles.append(model.forward(Rows.chain([1] * rows, context), kv=kv).cycles)
            kv.truncate(0)
        passes.append({"rows": rows, "context": context, "in order": cycles[0], "by list": cycles[1],
                       "ratio": cycles[1] / cycles[0]})
        print(passes[-1], flush=True)
    return {"schema": "gemmule/benchmark-pages/1", "version": __version__, "config": "base",
            "config_sha256": config.sha256, "pool": POOL, "page": PAGE, "seed": SEED, "passes": passes}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    record = measure()
    write_atomically(parser.parse_args().out / "pages.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
