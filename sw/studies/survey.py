"""Integer units against a host for softmax, norms and GELU: the case study of "Full Stack Optimization of Transformer
Inference" (Kim et al., 2023), BERT-base at 512 tokens.

There a 16 x 16 array multiplied and a Rocket core did the rest in float; units after I-BERT made it 39.6 times as
fast. Here both sides are this device: the network in integer units, and products alone, with operands going to DRAM
and back, beside a host. Three hosts are compared; none is fitted to a speed-up of ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.compiler.importers.architectures import Architecture, architecture
from gemmule.config import Config
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.architectures import Work, run_architecture
from gemmule.sw.workloads.host_model import IN_ORDER, VECTOR, Host
from gemmule.sw.workloads.offload import Offload, offload

__all__ = ["CLOCKS", "SPEEDS", "STUDY", "published_host", "survey_rows"]

SEQUENCE = 512
SPEED_UP = 39.6
UTILIZATION = 0.74
"""Of the array by products, as published."""
WITH_UNITS = {"products, GELU among them": 0.87, "softmax": 0.03, "LayerNorm": 0.07, "residual": 0.04}
"""Shares of the time, figure 14."""
WITH_HOST = {"products": 0.01, "softmax": 0.19, "layernorm": 0.04, "add": 0.11, "(de)quantise": 0.49, "gelu": 0.10}
SPEEDS = (1, 2, 4, 8, 16)
CLOCKS = (0.5, 2, 4)


def published_host(left: Offload, config: Config) -> Host:
    """The host that the survey's figures imply, for the work that ``left`` tells.

    Its products take ``macs / (DIM**2 * 0.74)`` cycles, 87 % of the time with units; 39.6 times that time, less the
    products, is its host's. Softmax, LayerNorm, sums and GELU have their published shares; conversions, which have
    49 %, also take the twentieth that the published shares leave over.
    """
    whole, products = _whole(left, config), left.macs / (config.dim ** 2 * UTILIZATION)
    named = ("softmax", "layernorm", "add", "gelu")
    counts = {kernel: sum(part.elements for part in left.operators if kernel in part.kernels) for kernel in (
        *named, "dequantise", "quantise")}
    found = {kernel: WITH_HOST[kernel] * whole / counts[kernel] for kernel in named}
    rest = whole - products - sum(WITH_HOST[kernel] for kernel in named) * whole
    conversion = rest / (counts["dequantise"] + counts["quantise"])
    return Host(name="published host", source="arXiv 2302.14017, figure 14 and the 39.6x",
                cycles=found | {"dequantise": conversion, "quantise": conversion})


def _whole(left: Offload, config: Config) -> float:
    """Cycles of the survey's network beside its host."""
    products = left.macs / (config.dim ** 2 * UTILIZATION)
    return SPEED_UP * products / WITH_UNITS["products, GELU among them"]


def _run(config: Config) -> list[Row]:
    return survey_rows(architecture("bert-base"), config, SEQUENCE)


def survey_rows(network: Architecture, config: Config, sequence: int) -> list[Row]:
    """All rows; published figures are those of BERT-base at 512 tokens on a 16 x 16 array.

    Raises:
        CompileError: the network does not fit.
    """
    record = run_architecture(network, config, Work(phase="encode", seq=sequence))
    units = record["cycles"] + config.host.launch_cycles
    left = offload(network.graph(), config, sequence)
    hosts = (published_host(left, config), IN_ORDER, VECTOR)
    rows = [
        Row(setting="integer units, whole network", unit="cycles", published=None, here=units,
            why=f"one launch of {record['commands']:,} commands, the host's work for it included; "
                f"{record['dram_bytes']:,} bytes of DRAM"),
        Row(setting="integer units, share of peak MACs", unit="share", here=left.macs / (units * config.dim ** 2),
            published=WITH_UNITS["products, GELU among them"] * UTILIZATION,
            why="published: products are 87 % of the time and keep 74 % of the array busy; here softmax, norms and "
                "sums run beside the products"),
        Row(setting="products alone", unit="cycles", published=None, here=left.product_cycles,
            why=f"{left.launches:,} launches, each product from DRAM and back as int8; {left.product_bytes:,} bytes"),
        Row(setting="products alone, share of peak MACs", unit="share", published=UTILIZATION,
            here=left.macs / (left.product_cycles * config.dim ** 2),
            why="the same array; loads run ahead of products and preloads hide")]
    for host in hosts:
        rows.append(Row(
            setting=f"speed-up over the {host.name}", unit="times", published=SPEED_UP if host is hosts[0] else None,
            here=left.cycles(host, config) / units, why=f"{host.source}; nothing overlaps"))
    named = sum(WITH_HOST.values()) - WITH_HOST["products"]
    rows.append(Row(
        setting="speed-up over the published host, named shares alone", unit="times", published=SPEED_UP,
        here=(left.product_cycles + named * _whole(left, config)) / units,
        why=f"without what the published shares, which add up to {sum(WITH_HOST.values()):.0%}, leave over"))
    for host in hosts:
        rows += _sensitivity(host, left, config, units)
    return rows


def _sensitivity(host: Host, left: Offload, config: Config, units: int) -> Iterator[Row]:
    """Where a host's time goes, and what another speed, clock or overlap makes of the speed-up."""
    whole = left.cycles(host, config)
    for operator in left.operators:
        yield Row(
            setting=f"{host.name}: share of {operator.name}", unit="share", published=None,
            here=host.spends(operator, config) / whole,
            why=" + ".join(f"{kernel} {host.cycles[kernel]:.3g}" for kernel in operator.kernels)
                + f" cycles an element, {operator.elements:,} elements, {operator.bytes:,} bytes")
    for speed in SPEEDS:
        yield Row(setting=f"{host.name}: speed-up, {speed} x its speed", unit="times", published=None,
                  here=left.cycles(host, config, speed=speed) / units, why="arithmetic alone is faster; no overlap")
        yield Row(setting=f"{host.name}: speed-up, {speed} x its speed, overlapped", unit="times", published=None,
                  here=left.cycles(host, config, speed=speed, overlapped=True) / units,
                  why="as if products and host never waited for each other, which their order does not allow")
    for clock in CLOCKS:
        yield Row(setting=f"{host.name}: speed-up, clocked {clock:g} x the device", unit="times", published=None,
                  here=left.cycles(host, config, clock=clock) / units,
                  why="arithmetic and launches are faster; DRAM stays as it is")


STUDY = Study(
    title="integer units against host offload, BERT-base at 512 tokens", config="base", run=_run,
    source="Kim et al., Full Stack Optimization of Transformer Inference, arXiv 2302.14017, section 3.4")
