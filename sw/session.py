"""From a config and a method to a finished generation: what the commands and benchmarks call."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.sw.decoding.drafters import Autoregressive, DraftModel
from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.tree import Drafter
from gemmule.sw.device import Device, open_device
from gemmule.sw.errors import InputError
from gemmule.sw.ledger import Ledger
from gemmule.sw.limits import DRAFTS_DEFAULT, METHODS, check_choice
from gemmule.sw.pair import Pair, bundled_pair
from gemmule.sw.runtime import LoadedModel

__all__ = ["Session"]

ALIGN = 1 << 16


class Session:
    """One device with a pair of target and draft on it, one behind the other in DRAM; by default the bundled small one.

    A context manager: the RTL back end runs a simulator process.
    """

    def __init__(self, config: Config, backend: str = "model", pair: Pair | None = None) -> None:
        pair = pair or bundled_pair()
        target = pair.target(config, 0)
        size = round_up(target.program.size, ALIGN)
        draft = pair.draft(config, size) if pair.draft else None
        if draft:
            size = round_up(size + draft.program.size, ALIGN)
        self.config = config
        self.device: Device = open_device(backend, config, size)
        self.target = LoadedModel("target", target.program, target.dram, self.device)
        self.draft = LoadedModel("draft", draft.program, draft.dram, self.device) if draft else None

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
            if self.draft is None:
                raise InputError("--method draft needs a draft model: give --draft-model FILE, or --method ar")
            drafter = DraftModel(self.draft.charging(ledger), num_speculative_tokens)
        try:
            return generate(self.target, drafter, prompt, max_new_tokens, ledger, stop, progress)
        except ValueError as error:
            raise InputError(str(error)) from None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.device.close()
