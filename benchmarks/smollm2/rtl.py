"""Tokens of the whole published model on the Verilog under Verilator: every byte and cycle beside the model's.

Each pass begins on both devices with the same DRAM, that of the pass before, so passes that are recorded are not run
on the RTL again: a run that was ended goes on with the first one that is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from benchmarks.common import show
from benchmarks.smollm2.asked import asked
from benchmarks.smollm2.model import model_path, pair_of, source
from gemmule.compiler.files.model_file import load_model
from gemmule.config import Config, load_config
from gemmule.io.progress import working
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.rtl.verilog import verilog_path
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.session import Session
from gemmule.timing import Timing

__all__ = ["rtl"]

CONFIG, BITS, TOKENS, RTL_DRAM_BYTES = "base", "int8", 24, 512 << 20
METHODS = {"ar": "shortest", "pld": "grounded"}
"""Methods, and the category whose first request is answered; of all, the shortest."""
Record = dict[str, Any]


class Twin:
    """A back end of two devices: the model's answers, and the RTL beside it for passes that are not in ``passes``."""

    def __init__(self, config: Config, size: int, passes: list[Record], save: Callable[[], None],
                 simulator: Callable[[], RtlDevice]) -> None:
        self.config, self.passes, self.save, self.simulator = config, passes, save, simulator
        self.model, self.size, self.done = Simulator(config, dram_bytes=size), size, 0
        self.write_dram, self.read_dram, self.close = self.model.write_dram, self.model.read_dram, self.model.close

    def load(self, launch: Launch) -> None:
        self.launch = launch

    def run(self) -> Result:
        """
        Raises:
            SystemExit: the devices differ, or a pass is not the one that is recorded.
        """
        number, self.done = self.done, self.done + 1
        if number < len(self.passes):
            self.model.load(self.launch)
            result = self.model.run()
            if result.cycles != self.passes[number]["cycles"]:
                raise SystemExit(f"pass {number} must take the cycles that are recorded of it; measure it --again")
            return result
        case = replace(self.launch, dram=np.frombuffer(self.model.read_dram(0, self.size), dtype=np.uint8))
        begun = time.perf_counter()
        with working(f"pass {number} on the RTL", least=1.0):
            report = cosim(case, self.model, self.simulator())
        if not report.ok:
            raise SystemExit(report.text)
        self.passes.append({
            "commands": len(report.seen.issue), "cycles": report.seen.cycles, "bytes": self.size,
            "bytes_different": report.byte_differences, "cycles_different": report.cycle_differences,
            "counters_different": report.counter_differences, "seconds": round(time.perf_counter() - begun, 1)})
        self.save()
        return report.expected


def rtl(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: by method, its passes and the text."""
    config, pair = load_config(CONFIG), pair_of(BITS)
    conditions = {"config": CONFIG, "weights": BITS, "new_tokens": TOKENS,
                  "sha256": load_model(model_path(BITS)).sha256, "verilog_sha256": sha256(
                      verilog_path(config, Timing.of(config)).read_bytes()).hexdigest()}
    if {name: record.get(name) for name in conditions} != conditions:  # of another device or model
        record.clear()
        record.update(conditions)
    runs, opened = record.setdefault("runs", {}), []

    def simulator() -> RtlDevice:
        if not opened:  # only where something is left to run
            opened.append(RtlDevice(config, dram_bytes=RTL_DRAM_BYTES))
        return opened[0]

    try:
        for method, category in METHODS.items():
            request = min((one for one in asked() if category in (one.category, "shortest")),
                          key=lambda one: len(one.ids))
            run = runs.setdefault(method, {"request": request.name, "prompt_tokens": len(request.ids), "passes": []})
            passes = run["passes"]

            def opened_beside(config: Config, size: int, passes: list[Record] = passes) -> Twin:
                return Twin(config, size, passes, save, simulator)

            with Session(config, opened_beside, pair) as session:
                made = session.generate(method, list(request.ids[1:]), TOKENS, stop=pair.ends)
            run.update(told(made))
            save()
    finally:
        for device in opened:
            device.close()
    show(f"SmolLM2 on the RTL of {CONFIG}", [{
        "method": method, "request": run["request"], "tokens": run["tokens"], "passes": len(run["passes"]),
        "cycles": sum(one["cycles"] for one in run["passes"]), "bytes": run["passes"][0]["bytes"],
        "different": sum(one[name] for one in run["passes"] for name in one if name.endswith("_different")),
        "RTL minutes": round(sum(one["seconds"] for one in run["passes"]) / 60, 1)} for method, run in runs.items()])


def told(made: Generation) -> Record:
    """The text."""
    return {"tokens": len(made.tokens), "text": source().tokenizer.decode(made.tokens, skip_special_tokens=False),
            "device_cycles": made.ledger.device_cycles}
