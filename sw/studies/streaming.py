"""Speculative Streaming's tables and figures on their own shapes: what a step costs here, by streams, drafts, heads.

Bhendawade et al. 2024 decode with OPT-1.3b and 6.7b (beside OPT-125m as a draft model, four drafts), PHI-1.3b and
OpenLLaMA-7b. How many passes of the target a text takes there (Tables 1 and 2) is a property of the trained networks
and is taken from there; what a pass costs is this device's, timed by shape. So each speed-up here is the published
tokens a step over the cost of a step here, in passes of one row.

The device has four times the memories of ``base``: 16 rows of 4,096 columns do not fit 256 KiB. A pass has as many
rows as the mesh. Streams take theirs beside the candidates, which the method of this toolkit does too
(:mod:`gemmule.sw.decoding.methods.streaming`); the sweep over candidates (Fig. 5) does not prune.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.streaming import Cost, ShapeCosts, tree_nodes

__all__ = ["STUDY", "Shapes", "streaming_rows"]

GAMMA = 4
"""Drafts of the draft model, and streams."""
HEADS, LAYERS = 4, 4
"""Of Medusa; the last layers that streams run."""
STREAM_ROWS = 20
"""Learned rows that the published parameter counts divide into."""
TOPS = (1, 2, 3)
"""Candidates of a stream (Fig. 5)."""
DRAFT_LAYERS = (12, 6, 3)
"""Of the draft model (Fig. 4)."""
CONTEXT, POSITIONS = 256, 512
MEMORIES, ADDRESS_BITS = 4, 40


@dataclass(frozen=True)
class Published:
    """Of a network, on SQL queries: Table 1, and where it has a draft model, Table 2."""

    medusa: tuple[float, float, float] | None = None
    """Speed-up, tokens a step, extra parameters."""
    streaming: tuple[float, float, float] | None = None
    calls: tuple[float, float, float] | None = None
    """A sample's calls of the target and of the draft model, and of the target with streams."""
    milliseconds: tuple[float, float] | None = None
    """With a draft model and with streams."""


PUBLISHED = {
    "opt-1.3b": Published((2.07, 2.79, 4.28e8), (2.39, 3.57, 4.096e4), (6.59, 22.35, 7.79), (269.24, 133.48)),
    "opt-6.7b": Published(calls=(6.60, 22.41, 6.88), milliseconds=(301.10, 157.04)),
    "phi-1.3b": Published((2.58, 3.25, 4.36e8), (2.62, 3.53, 4.096e4)),
    "open-llama-7b": Published((3.20, 4.10, 5.91e8), (3.14, 4.13, 8.19e4))}


@dataclass(frozen=True)
class Shapes:
    """Networks and sizes of a run."""

    targets: tuple[Architecture, ...]
    """The first one also has the figures."""
    draft: Architecture
    context: int
    positions: int
    layers: int
    """The last ones, which streams run."""


def _on_chip() -> Shapes:
    return Shapes(tuple(map(architecture, PUBLISHED)), architecture("opt-125m"), CONTEXT, POSITIONS, LAYERS)


def streaming_rows(shapes: Shapes, config: Config) -> Iterator[Row]:
    """All rows, network by network; then the figures.

    Raises:
        CompileError: a network does not fit the device.
    """
    draft = ShapeCosts(shapes.draft, config, shapes.context, shapes.positions)
    targets = [ShapeCosts(found, config, shapes.context, shapes.positions) for found in shapes.targets]
    for target in targets:
        published = PUBLISHED.get(target.network.name, Published())
        yield from _parameters(target, published)
        yield from _speed_ups(target, published, shapes.layers)
        if published.calls:
            yield from _calls(target, draft, published, shapes.layers)
    yield from _break_even(targets[0], shapes)
    yield from _candidates(targets[0], shapes.layers)
    yield from _roofline(targets[0], draft, shapes.layers)


def _step(cost: Cost, config: Config) -> float:
    """With the host's part."""
    return cost.cycles + config.host.step_cycles


def _streamed(target: ShapeCosts, layers: int) -> Cost:
    """As many rows as the mesh has in every layer: half of them candidates, half streams behind."""
    return target.streamed(target.config.dim // 2, target.config.dim, layers)


def _parameters(target: ShapeCosts, published: Published) -> Iterator[Row]:
    """Table 1's last column."""
    heads, streams = published.medusa, published.streaming
    if heads and streams:
        yield Row(setting=f"{target.network.name}: extra parameters, Medusa", unit="numbers", published=heads[2],
                  here=target.medusa_parameters(HEADS), why=f"{HEADS} heads, each d x d + d x vocabulary, no biases")
        yield Row(setting=f"{target.network.name}: extra parameters, streams", unit="numbers", published=streams[2],
                  here=target.stream_parameters(GAMMA),
                  why=f"published: {STREAM_ROWS} rows of d, {target.stream_parameters(STREAM_ROWS):,}; here a stream "
                      f"begins with one learned row, {GAMMA} rows of d")


def _speed_ups(target: ShapeCosts, published: Published, layers: int) -> Iterator[Row]:
    """Table 1's speed-ups from its tokens a step."""
    config, name = target.config, target.network.name
    plain = _step(target.timed(1), config)
    medusa = _step(target.timed(config.dim) + target.heads(HEADS), config) / plain
    streams = _step(_streamed(target, layers), config) / plain
    for way, cost, found, said in (
            ("Medusa", medusa, published.medusa, f"{HEADS} heads on one row"),
            ("streams", streams, published.streaming, f"streams in the last {layers} of {target.layers} layers")):
        yield Row(setting=f"{name}: a step, {way}", unit="passes of one row", published=None, here=cost,
                  why=f"{config.dim} rows, {said}; host and launches included")
        if found:
            yield Row(setting=f"{name}: speed-up, {way}", unit="times", published=found[0], here=found[1] / cost,
                      why=f"published {found[1]} tokens a step over the step's cost here; there a step costs "
                          f"{found[1] / found[0]:.2f} passes of one row")


def _calls(target: ShapeCosts, draft: ShapeCosts, published: Published, layers: int) -> Iterator[Row]:
    """Table 2: what a sample takes with a draft model, over what it takes with streams."""
    config, name = target.config, target.network.name
    assert published.calls
    assert published.milliseconds
    verified, drafted, streamed = published.calls
    two = verified * _step(target.timed(GAMMA + 1), config) + drafted * draft.timed(1).cycles
    one = streamed * _step(_streamed(target, layers), config)
    slow, fast = published.milliseconds
    ratio = target.timed(1).cycles / draft.timed(1).cycles
    yield Row(setting=f"{name}: with a draft model over with streams", unit="times the time", published=slow / fast,
              here=two / one,
              why=f"{verified} and {drafted} calls against {streamed}; a pass of the target takes {ratio:.1f} of the "
                  f"draft model's here. There {slow} ms against {fast}, in which a draft model's pass takes "
                  f"{(slow - verified * fast / streamed) / drafted / (fast / streamed):.2f} of a target's if a "
                  "target's takes the same either way: many small kernels, not bytes, bound it")


def _break_even(target: ShapeCosts, shapes: Shapes) -> Iterator[Row]:
    """Fig. 4: tokens a step of streams over those of a draft model at which both are as fast."""
    config = target.config
    one = _step(_streamed(target, shapes.layers), config)
    for layers in (found for found in DRAFT_LAYERS if found <= shapes.draft.graph().layers):
        small = ShapeCosts(shapes.draft.resized("layers", layers), config, shapes.context, shapes.positions).timed(1)
        two, ratio = _step(target.timed(GAMMA + 1) + small * GAMMA, config), target.timed(1).cycles / small.cycles
        yield Row(setting=f"break-even tokens a step, {target.network.name} {ratio:.1f} times its draft model",
                  unit="of the draft model's", published=None, here=one / two,
                  why=f"{layers} layers of {shapes.draft.name}, {GAMMA} drafts a step; streams that have more than "
                      "this share of its tokens are faster")


def _candidates(target: ShapeCosts, layers: int) -> Iterator[Row]:
    """Fig. 5: k candidates of each stream, each behind each, streams behind every node; nothing pruned."""
    config = target.config
    plain, before = _step(target.timed(1), config), 1.0
    for top in TOPS:
        nodes = tree_nodes(top, GAMMA)
        rows = nodes * (1 + GAMMA)
        cost = _step(target.streamed(nodes, rows, layers), config) / plain
        yield Row(setting=f"k = {top}: a step, {target.network.name}", unit="passes of one row", published=None,
                  here=cost,
                  why=f"{nodes} candidates, {rows} rows in the last {layers} layers; to pay it must have "
                      f"{cost / before:.2f} times the tokens a step of what is above; more than {config.dim} rows "
                      "are limited by products, more than twice as many are on the line")
        before = cost


def _roofline(target: ShapeCosts, draft: ShapeCosts, layers: int) -> Iterator[Row]:
    """Fig. 3: of a step, products over the mesh's peak, and operations over bytes of DRAM."""
    config = target.config
    steps = {
        "ar": target.timed(1), "a draft model": target.timed(GAMMA + 1) + draft.timed(1) * GAMMA,
        "Medusa": target.timed(config.dim) + target.heads(HEADS), "streams": _streamed(target, layers)}
    for way, cost in steps.items():
        yield Row(setting=f"share of peak MACs, {way}", unit="share", published=None, here=cost.utilization(config),
                  why=f"a step of {target.network.name}, drafted and verified")
        yield Row(setting=f"operations per byte, {way}", unit="operations", published=None,
                  here=cost.operations_per_byte,
                  why=f"the mesh does {2 * config.dim ** 2 / config.bus_bytes:.0f} in the time of a byte")


def _run(config: Config) -> list[Row]:
    large = Config.model_validate(config.model_dump() | {
        "name": f"{config.name}-large", "spm_kib": MEMORIES * config.spm_kib, "acc_kib": MEMORIES * config.acc_kib,
        "address_bits": max(config.address_bits, ADDRESS_BITS)})
    return list(streaming_rows(_on_chip(), large))


STUDY = Study(
    title="streams, a draft model and Medusa's heads on Speculative Streaming's shapes", config="base", run=_run,
    source="Bhendawade et al. 2024, arXiv 2402.11131, Tables 1 and 2 (SQL queries), Figures 3, 4 and 5")
