"""What every training run shares: device, threads, a log, checkpoints that a kill at any moment leaves whole."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gemmule.io.files import write_atomically

__all__ = ["Log", "Place", "autocast", "load_state", "make_folders", "multiplies_bfloat16", "open_place",
           "products_of", "save_state"]


@dataclass(frozen=True)
class Place:
    """Where training runs.

    Attributes:
        device: ``cuda`` where torch finds one, else ``cpu``.
        threads: of torch on a CPU.
        compiled: layers are compiled, which needs a C++ compiler and takes a quarter less time.
        products: of matrices, bfloat16 where the processor multiplies it, else float32: a processor of 2021 with AVX2
            takes 50 times as long for the first as for the second.
    """

    device: torch.device
    threads: int
    compiled: bool
    products: torch.dtype

    def describe(self) -> dict[str, Any]:
        """As records tell it: the same numbers on another machine give other last bits."""
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else _processor()
        return {"torch": torch.__version__, "device": self.device.type, "processor": name, "threads": self.threads,
                "compiled": self.compiled, "products": str(self.products).removeprefix("torch.")}


def _told(*names: str) -> str:
    """What Linux tells of the processor under the first of these names, nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(names)), "")
    except OSError:
        return ""


def _processor() -> str:
    return _told("model name") or "not known"


def multiplies_bfloat16(flags: str) -> bool:
    """Whether a processor with these flags (x86) or features (Arm) has instructions for products of bfloat16."""
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags.split())


def products_of(device: torch.device) -> torch.dtype:
    """What a device multiplies fast: bfloat16, or float32 on a processor without instructions for the first."""
    native = device.type == "cuda" or multiplies_bfloat16(_told("flags", "Features"))
    return torch.bfloat16 if native else torch.float32


def open_place(threads: int, compiled: bool | None = None) -> Place:
    """Choose the device and set torch's threads; ``compiled`` None: where there is a C++ compiler."""
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return Place(device, threads, bool(shutil.which("g++")) if compiled is None else compiled, products_of(device))


def make_folders(*folders: Path) -> None:
    """Make what results go into before hours of work, not behind them.

    Raises:
        ValueError: one cannot be made.
    """
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{folder} must be a folder that can be made ({error.strerror}): name another one") from None


def autocast(place: Place) -> torch.autocast:
    """Products in what the place multiplies fast, weights and sums in float32."""
    return torch.autocast(place.device.type, torch.bfloat16, enabled=place.products == torch.bfloat16)


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint through a rename."""
    temporary = path.with_name(path.name + ".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load_state(path: Path, recipe: str) -> dict[str, Any] | None:
    """The checkpoint, or None where there is none.

    Raises:
        ValueError: it is of another recipe.
    """
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    if state["recipe"] != recipe:
        raise ValueError(f"{path}: is of another recipe or seed: remove it, or give another --out")
    return state


@dataclass
class Log:
    """One JSON object a line. What stands behind the step of a checkpoint is cut when a run resumes from it."""

    path: Path
    stage: str
    seconds: float = 0.0
    resumed: int = 0
    _began: float = field(default_factory=time.monotonic)

    def resume(self, state: dict[str, Any] | None) -> None:
        """Go on behind the ``step`` of a checkpoint, ``seconds`` of work done and ``resumed`` so often.

        None: begin anew. Nothing stays of a run that ended before its first checkpoint, or whose checkpoint is gone.
        """
        step = 0
        if state:
            step, self.seconds, self.resumed = state["step"], state["seconds"], state["resumed"] + 1
        self._began = time.monotonic()
        kept = [line for line in self._lines() if not (line["stage"] == self.stage and line["step"] > step)]
        write_atomically(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def elapsed(self) -> float:
        """Seconds of work on this stage over all its runs."""
        return self.seconds + time.monotonic() - self._began

    def write(self, step: int, steps: int, **values: Any) -> None:
        """Append a line and print it."""
        line = {"stage": self.stage, "step": step} | values | {"seconds": round(self.elapsed(), 1)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        shown = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                          for name, value in values.items())
        left = self.elapsed() / max(1, step) * (steps - step)
        print(f"{self.stage} {step}/{steps}: {shown}, {self.elapsed():.0f} s, {left / 60:.0f} min left", flush=True)

    def _lines(self) -> Iterator[dict[str, Any]]:
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                if line.endswith("}"):  # a kill may have cut the last one
                    yield json.loads(line)
