"""From a config and a method to a finished generation: what the commands and benchmarks call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from gemmule.compiler.decoder_program import DecoderProgram
from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.sw.decoding.drafters import Autoregressive, DraftModel
from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.tree import Drafter
from gemmule.sw.device import Device, open_device
from gemmule.sw.errors import InputError
from gemmule.sw.ledger import Ledger
from gemmule.sw.limits import DRAFTS_DEFAULT, METHODS, SMALL, check_choice
from gemmule.sw.programs import bundled_program
from gemmule.sw.runtime import LoadedModel

__all__ = ["Session"]

ALIGN = 1 << 16


@dataclass(frozen=True)
class _Placed:
    target: DecoderProgram
    draft: DecoderProgram
    dram_bytes: int


def _place(config: Config, pair: str) -> _Placed:
    """Both models in one DRAM, one after the other."""
    target = bundled_program("target", config, pair=pair)
    base = round_up(target.size, ALIGN)
    draft = bundled_program("draft", config, base, pair)
    return _Placed(target, draft, round_up(base + draft.size, ALIGN))


class Session:
    """One device with a bundled pair of target and draft on it (:data:`gemmule.sw.limits.MODELS`).

    A context manager: the RTL back end runs a simulator process.
    """

    def __init__(self, config: Config, backend: str = "model", pair: str = SMALL) -> None:
        placed = _place(config, pair)
        self.config = config
        self.device: Device = open_device(backend, config, placed.dram_bytes)
        self.target = LoadedModel("target", placed.target, self.device)
        self.draft = LoadedModel("draft", placed.draft, self.device)

    def generate(
        self, method: str, prompt: list[int], max_new_tokens: int, num_speculative_tokens: int = DRAFTS_DEFAULT,
        stop: frozenset[int] = frozenset(), progress: Callable[[list[int]], None] | None = None,
    ) -> Generation:
        """Generate with ``method`` (``ar`` or ``draft``), from an empty KV cache; ``ar`` drafts nothing.

        Raises:
            InputError: an option is outside its range.
        """
        check_choice("--method", method, METHODS)
        if max_new_tokens < 1:
            raise InputError(f"--max-new-tokens must be at least 1, not {max_new_tokens}")
        most = self.target.program.max_rows - 1
        if method == "draft" and not 1 <= num_speculative_tokens <= most:
            raise InputError(
                f"--num-speculative-tokens must be from 1 to {most} (one pass verifies "
                f"{most + 1} rows), not {num_speculative_tokens}")
        ledger = Ledger(self.config)
        drafter: Drafter = Autoregressive()
        if method == "draft":
            drafter = DraftModel(self.draft, num_speculative_tokens, ledger)
        try:
            return generate(self.target, drafter, prompt, max_new_tokens, ledger, stop, progress)
        except ValueError as error:
            raise InputError(str(error)) from None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.device.close()
