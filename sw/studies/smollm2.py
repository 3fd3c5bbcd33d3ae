"""SmolLM2-135M on an FPGA board and here, autoregressive, a token a pass: tokens a second for each byte of the bus.

Such decoding reads every weight once a token, so the bus decides, and boards differ most in theirs. Torch2RISCV tells
what it measured with one and with two read ports of 128 bits at 100 MHz, int8 weights, the host's work included.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.importers.architectures import Architecture
from gemmule.config import Config
from gemmule.sw.studies import Row, Study
from gemmule.sw.workloads.architectures import Work, run_architecture

__all__ = ["CONTEXT", "NETWORK", "PUBLISHED", "STUDY", "smollm2_rows"]

NETWORK = Architecture(
    name="smollm2-135m", source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct", parameters=134_515_008,
    config={
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 49_152, "hidden_size": 576,
        "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "max_position_embeddings": 8192, "rope_theta": 100_000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": True})
CONTEXT, POSITIONS = 64, 1024
"""Tokens behind which a pass is timed, and for how many the program is compiled."""
MHZ = 100


@dataclass(frozen=True)
class _Board:
    """A published figure of the same network."""

    name: str
    tokens: float
    """A second."""
    bus: int | None
    """Bytes a cycle; None: not told."""
    where: str


PUBLISHED = (
    _Board("one port of 128 bits", 7.71, 16, "docs/k2b_gemv_design.md, 2026-10-10: 129.6 ms a step"),
    _Board("two ports of 128 bits", 12.58, 32, "docs/k2b_gemv_design.md, 2026-10-10: 79.5 ms a step"),
    _Board("release 2.3", 27.0, None, "3.7 M cycles a token; its ports are not known here"),
)


def smollm2_rows(network: Architecture, config: Config, boards: tuple[_Board, ...] = PUBLISHED) -> list[Row]:
    """Rows for each published figure; this device is timed once, by shape.

    Raises:
        CompileError: the network does not fit.
    """
    record = run_architecture(network, config, Work(phase="decode", seq=CONTEXT, context=POSITIONS))
    cycles = record["cycles"] + config.host.launch_cycles + config.host.step_cycles
    tokens, size = MHZ * 1e6 / cycles, record["network_bytes"]
    timed = (f"{cycles:,} cycles a token behind {CONTEXT} others, {config.bus_bytes} bytes a cycle, the host's work "
             f"included; simulated, not a board")
    rows = [Row(setting="cycles a token", unit="cycles", published=None, here=cycles, why=timed)]
    for board in boards:
        bus = board.bus
        least = size * board.tokens / (MHZ * 1e6)
        if bus is None:
            rows.append(Row(
                setting=f"{board.name}: tokens/s at {MHZ} MHz for each byte of the bus, at most", unit="tokens/s",
                published=board.tokens / least, here=tokens / config.bus_bytes,
                why=f"{board.tokens} tokens/s ({board.where}) need {least:.1f} bytes a cycle with int8 weights; the "
                    f"figure is for a bus of no more than that, all of it used. {timed}"))
            continue
        rows += [
            Row(setting=f"{board.name}: tokens/s at {MHZ} MHz for each byte of the bus", unit="tokens/s",
                published=board.tokens / bus, here=tokens / config.bus_bytes,
                why=f"{board.tokens} tokens/s on {bus} bytes a cycle ({board.where}), measured on a board. {timed}"),
            Row(setting=f"{board.name}: share of the bus that the network needs", unit="share",
                published=least / bus, here=size * tokens / (MHZ * 1e6 * config.bus_bytes),
                why=f"{size:,} bytes a token, each weight once, over what the bus moves in that time")]
    return rows


def _run(config: Config) -> list[Row]:
    return smollm2_rows(NETWORK, config)


STUDY = Study(
    title="SmolLM2-135M, autoregressive, for each byte of the bus", config="base", run=_run,
    source="jonathansong/Torch2RISCV-accelerator, AMD Kria KV260 at 100 MHz, int8 weights")
