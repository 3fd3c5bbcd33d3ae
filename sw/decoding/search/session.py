"""A device with a target whose passes take a row of each of several texts that begin alike."""

from __future__ import annotations

from types import TracebackType

from gemmule.config import Config
from gemmule.sim.simulator import Simulator
from gemmule.sw.decoding.search.run import Found, Search
from gemmule.sw.decoding.stops import NO_STOPS, Stops
from gemmule.sw.device.backends import Device, open_device
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.models.branching import Branching
from gemmule.sw.models.pair import Pair

__all__ = ["SearchSession"]


class SearchSession:
    """The target alone, with the programs of a search. A context manager, as a :class:`Session` is."""

    def __init__(self, config: Config, pair: Pair, branching: Branching, backend: str = "model", *,
                 interpreted: bool = False, prefill: int | None = None) -> None:
        """``interpreted``, ``prefill``: as of :class:`gemmule.sw.decoding.session.Session`.

        Raises:
            InputError: the device takes fewer texts.
        """
        placed = pair.target(config, 0, True, prefill=prefill, branches=branching)
        self.config = config
        if interpreted:
            timer = Simulator(config, dram_bytes=1)
            self.device: Device = timer
            self.target: LoadedModel = InterpretedModel(TARGET, placed.network, placed.program, timer, placed.prefill)
        else:
            self.device = open_device(backend, config, len(placed.dram))
            self.target = LoadedModel(TARGET, placed.program, placed.dram, self.device, prefill=placed.prefill)

    def search(self, way: Search, prompt: list[int], max_new_tokens: int, stops: Stops = NO_STOPS,
               ledger: Ledger | None = None) -> Found:
        """Look for texts behind ``prompt``.

        Raises:
            InputError: the prompt is empty, or does not fit.
        """
        try:
            return way.run(self.target, prompt, max_new_tokens, stops, ledger or Ledger(self.config))
        except ValueError as error:
            raise InputError(str(error)) from None

    def __enter__(self) -> SearchSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.device.close()
