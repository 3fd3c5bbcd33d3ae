"""Wall clock of the tool on SmolLM2: compiling, the first token of a warm start, tokens a second, the import.

The machine should be idle; its load stands beside the numbers. Each start is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import show
from benchmarks.smollm2.asked import asked
from benchmarks.smollm2.model import model_path
from gemmule.io.progress import say

__all__ = ["tool"]

BITS, GROUNDED, TOKENS = "int8", "grounded", 48
QUIET = 1.5
"""Load below which times mean something."""
ENGINES = """
from gemmule.config import load_config
from gemmule.sw.decoding.session import Session
with Session(load_config("base"), interpreted=True) as session:
    session.generate("ar", [1, 2, 3], 1)
"""
"""Compiles the simulator's own loops, which every model shares, and nothing of SmolLM2."""
START = """
import json, sys, time
begin = time.perf_counter()
from pathlib import Path
from gemmule.config import load_config
from gemmule.sw.models.pair import imported_pair
from gemmule.sw.decoding.session import Session
model, prompt, tokens, methods = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
found = {}
with Session(load_config("base"), pair=imported_pair(Path(model)), interpreted=True) as session:
    found["ready"] = time.perf_counter() - begin
    for method in methods:
        times = []
        session.generate(method, prompt, tokens, progress=lambda new: times.append((len(new), time.perf_counter())))
        found.setdefault("first token", times[0][1] - begin)
        if len(times) > 1:
            found[method] = sum(count for count, _ in times[1:]) / (times[-1][1] - times[0][1])
print(json.dumps(found))
"""

Record = dict[str, Any]


def tool(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: seconds and tokens a second."""
    load = os.getloadavg()[0]
    if load > QUIET:
        say(f"load {load:.1f}: other work runs on this machine, so these times say little")
    request, model = next(one for one in asked() if one.category == GROUNDED), model_path(BITS)
    prompt = json.dumps(request.ids[1:])
    with tempfile.TemporaryDirectory() as cache:
        _process(cache, ENGINES)
        cold = _process(cache, START, str(model), prompt, "1", "ar")
        warm = _process(cache, START, str(model), prompt, str(TOKENS), "ar", "pld")
    record.update({
        "load at the beginning": load, "weights": BITS, "request": request.name, "prompt_tokens": len(request.ids) - 1,
        "compile_seconds": cold["ready"] - warm["ready"], "ready_seconds": warm["ready"],
        "first_token_seconds": warm["first token"], "ar_tokens_per_second": warm["ar"],
        "pld_tokens_per_second": warm["pld"]})
    save()
    show(f"wall clock, load {load:.1f}", [{"what": name, "value": value} for name, value in record.items()
                                          if isinstance(value, float)])
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "benchmarks/importing.py", "--out", folder], check=True)
        record["import"] = json.loads((Path(folder) / "importing.json").read_text())["rows"]
    save()


def _process(cache: str, code: str, *arguments: str) -> Record:
    """What a process with a cache of its own prints last."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.PIPE, text=True,
                          env=os.environ | {"GEMMULE_CACHE": cache})
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
