"""Images, bytes, cycles and texts that a refactoring must leave as they are, compared with those recorded before it.

    python -m benchmarks.fixed --record docs/results/fixed.json     before the first change
    python -m benchmarks.fixed docs/results/fixed.json              behind each one: exit code 1 where anything differs

The list: products; BERT-base and GPT-2 by shape; every program of the bundled pairs (plain, general, moves, commit,
prefill, single rows, greedy loop, step in one launch) in int8 and int4, alone and for a batch; what they decode by
each method. An image stands as the first 16 digits of its SHA-256, so it says nothing of which class holds it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import console, write
from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.program import NO_DRAM, Program
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.programs.product import compile_product
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.compiler.search.decoder import compile_best
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY, Match, Rejection, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.workloads.passes import EncoderPasses, Passes

PRODUCTS = (
    ("512x768x3072", "ws", 8, 0), ("512x768x3072", "os", 8, 0), ("512x3072x768", "ws", 8, 0),
    ("1x768x3072", "ws", 8, 0), ("16x768x3072", "ws", 8, 0), ("1x768x768", "ws", 8, 0),
    ("1x768x3072", "ws", 4, 0), ("1x768x3072", "ws", 4, 64))
METHODS = ("ar", "draft", "pld")
NEW_TOKENS = 16
PROMPT_TOKENS = 48


def number_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def images(thing: Any) -> set[str]:
    """Numbers of the images of every program that this one holds."""
    found = {number_of(thing.image)} if isinstance(thing, Program) else set()
    if is_dataclass(thing):
        return found.union(*(images(getattr(thing, part.name)) for part in fields(thing)))
    return found.union(*map(images, thing)) if isinstance(thing, tuple) else found


def products(config: Config) -> Iterator[tuple[str, Any]]:
    for shape, dataflow, bits, group in PRODUCTS:
        m, k, n = map(int, shape.split("x"))
        program = compile_product(config, m, k, n, weights=WeightFormat(bits, group), dataflow=dataflow)
        simulator = Simulator(config, dram_bytes=1)
        simulator.load(program.launch(shape, NO_DRAM, program.registers()))
        yield f"gemm {shape} {dataflow} int{bits}/{group}", {
            "image": number_of(program.image), "cycles": int(simulator.run(timing_only=True).cycles)}


def shapes(config: Config) -> Iterator[tuple[str, Any]]:
    network = by_shape(architecture("bert-base").graph(), bits=8, head_bits=8)
    encoder = compile_encoder(network, config, sequence=128)
    with EncoderPasses(encoder, network, "model", 0, True) as passes:
        passes.run(128)
    yield "bert-base, 128 tokens", {"image": number_of(encoder.image), "cycles": passes.cycles, "bytes": passes.moved}
    for bits in (8, 4):
        network = by_shape(architecture("gpt2").graph(), bits=bits, head_bits=8, group=32)  # type: ignore[arg-type]
        for rows, cached in ((1, 512), (8, 512), (16, 128)):
            program = compile_best(network, config, rows=rows, tokens=True, effort=1)
            with Passes(program, network, "model", 0, True) as run:
                run.fill_cache(cached)
                run.run(rows, rows)
            yield f"gpt2 int{bits}, {rows} rows behind {cached}", {
                "images": sorted(images(program)), "cycles": run.cycles, "bytes": run.moved}


def told(run: Generation, ledger: Ledger | None = None) -> dict[str, Any]:
    cost = ledger or run.ledger
    return {"tokens": number_of(json.dumps(run.tokens).encode()), "steps": run.steps, "device": int(cost.device_cycles),
            "host": int(cost.host_cycles), "launches": cost.launches, "bytes": {
                name: int(count) for name, count in sorted(cost.dram_bytes.items())}}


def pairs(config: Config) -> Iterator[tuple[str, Any]]:
    rules: dict[str, Rule] = {"greedy": GREEDY, **{
        name: rule(Sampling(temperature=0.8), Noise(seed=1))
        for name, rule in (("match", Match), ("reject", Rejection))}}
    for model, weights in (("small", "int8"), ("default", "int8"), ("default", "int4")):
        pair = bundled_pair(model, weights)
        prompts = [pair.encode(prompt.text)[:PROMPT_TOKENS] for prompt in load_categories()["completion"][:4]]
        for launch, batch, general in (("pass", 1, True), ("draft", 1, False), ("step", 1, False), ("pass", 4, True)):
            with Session(config, pair=pair, launch=launch, batch=batch, general=general) as session:
                name = f"{model} {weights} {launch}" + (f" batch {batch}" if batch > 1 else "")
                yield f"{name}: programs", sorted(images(tuple(vars(session.target).values())) | images(
                    tuple(vars(session.draft).values())))
                for method in METHODS:
                    for rule_name, rule in rules.items() if general else [("greedy", GREEDY)]:
                        if batch > 1:
                            ledger = Ledger(config)
                            runs = session.generate_batch(method, prompts, NEW_TOKENS, stop=pair.ends, rule=rule,
                                                          ledger=ledger)
                            yield f"{name}: {method} {rule_name}", [told(run) for run in runs] + [
                                told(runs[0], ledger)]
                        else:
                            yield f"{name}: {method} {rule_name}", [told(session.generate(
                                method, ids, NEW_TOKENS, stop=pair.ends, rule=rule)) for ids in prompts[:2]]
                if launch == "pass" and batch == 1:
                    for way in ({"kv_cache": "none"}, {"context_overflow": "sinks"}, {"lengths": "confidence"}):
                        yield f"{name}: draft {way}", told(session.generate(
                            "draft", prompts[0], NEW_TOKENS, stop=pair.ends, **way))  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a record to compare with")
    parser.add_argument("--record", type=Path, help="write the record here")
    parser.add_argument("--config", default="base")
    args = parser.parse_args()
    before = json.loads(args.before.read_text())["found"] if args.before else {}
    found: dict[str, Any] = {}
    differing = 0
    for part in (products, shapes, pairs):
        for name, value in part(load_config(args.config)):
            found[name] = json.loads(json.dumps(value))
            same = name in before and before[name] == found[name]
            differing += bool(before) and not same
            console.print(f"{name}: {'same' if same else 'differs' if before else 'recorded'}")
            if before and not same:
                console.print(f"  before {before.get(name)}\n  now    {found[name]}")
    if args.record:
        write(args.record, {"command": f"python -m benchmarks.fixed --record {args.record}", "found": found})
    missing = sorted(set(before) - set(found))
    if before:
        console.print(f"{len(found)} compared, {differing} differ, {len(missing)} are missing {missing or ''}")
    sys.exit(1 if differing or missing else 0)


if __name__ == "__main__":
    main()
