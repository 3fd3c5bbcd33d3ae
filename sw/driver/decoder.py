"""The decoder that an image is made of, what its tokens say, and the run that the driver's must equal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tokenizers import Tokenizer

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Rows
from gemmule.config import Config
from gemmule.sim.result import Result
from gemmule.sw.device.backends import open_device
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.models.pair import Pair
from gemmule.sw.models.placed import Placed
from gemmule.sw.step import Want

__all__ = ["ANSWERS", "NETWORKS", "Reference", "placed_decoder", "reference", "token_texts"]

ANSWERS = ("tokens", "logits")
"""Who chooses the greedy token: the device, or the host among logits."""
NETWORKS = ("target", "draft")


@dataclass(frozen=True)
class Reference:
    """Autoregressive decoding on a back end."""

    tokens: list[int]
    launches: int
    device_cycles: int


def placed_decoder(pair: Pair, network: str, config: Config, *, rows: int | None = None,
                   answers: str = "tokens") -> Placed:
    """One of a pair's networks with all its programs, or, for ``logits``, with the one that gives them back.

    ``rows``: of a launch, by default as many as go well.

    Raises:
        InputError: the pair has no draft, or the network does not run on the device.
    """
    place = pair.target if network == "target" else pair.draft
    if place is None:
        raise InputError(f"--network draft needs a draft model, and {pair.name} has none: take --network target")
    placed = place(config, 0, rows=rows, prefill=None)
    if answers == "tokens":
        return placed
    program = compile_network(placed.network, config, rows=placed.program.max_rows)
    return replace(placed, program=program, dram=program.fill(placed.network), prefill=None, narrow=())


def reference(placed: Placed, backend: str, prompt: Sequence[int], most: int, ends: Collection[int]) -> Reference:
    """Generate up to ``most`` tokens as ``gemmule generate --method ar`` does: up to and with one that ends the text.

    Raises:
        DeviceError: a launch ended with a fault, or the back end cannot be opened.
    """
    device = open_device(backend, placed.program.config, len(placed.dram))
    try:
        model = LoadedModel("target", placed.program, placed.dram, device, prefill=placed.prefill, narrow=placed.narrow)
        kv, found, results = model.kv(), list[int](), list[Result]()
        if len(prompt) > 1:
            results += model.forward(Rows.chain(list(prompt[:-1]), 0), Want(last=0), kv).results
        while len(found) < most and not (found and found[-1] in ends):
            answer = model.forward(Rows.chain([found[-1] if found else prompt[-1]], kv.length), Want(), kv)
            found += answer.argmax
            results += answer.results
    finally:
        device.close()
    return Reference(found, len(results), sum(int(result.cycles) for result in results))


def _byte_of() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: printable ones stand for themselves."""
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + i): byte for i, byte in enumerate(others)}


def token_texts(tokenizer: Tokenizer | None, vocab: int) -> list[bytes]:
    """The bytes of every token, none for special ones; empty without a byte-level tokenizer."""
    if tokenizer is None:
        return []
    byte_of, texts = _byte_of(), []
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    for number in range(vocab):
        piece = "" if number in special else tokenizer.id_to_token(number) or ""
        if any(character not in byte_of for character in piece):
            return []
        texts.append(bytes(byte_of[character] for character in piece))
    return texts
