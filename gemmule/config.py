"""Device configuration: one frozen object that RTL, model, compiler and tests share.

Sizes are bytes unless the name says otherwise; times are cycles of the device clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from .io.fields import first_problem
from .io.reading import ReadError, named, shown
from .io.yaml_file import read_yaml
from .isa import COMMAND_BYTES, INDEX_BITS
from .operations import FEATURES

__all__ = ["Config", "ConfigError", "Dram", "Host", "PRESETS", "load_config"]

PRESETS = ("tiny", "edge", "base")
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


class ConfigError(ValueError):
    """A configuration that breaks a rule; the message names value, rule and fix."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _power_of_two(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high or value & (value - 1):
        raise ValueError(f"{name} must be a power of two from {low} to {high}, not {value}")


class Dram(_Frozen):
    """Behavioural DRAM: in-order service, open rows per bank, periodic refresh."""

    latency: int = 60
    banks: int = 8
    row_bytes: int = 2048
    row_miss: int = 28
    turnaround: int = 4
    beat_cycles: int = 1
    """Cycles per bus beat: bandwidth is bus_bytes / beat_cycles bytes per cycle."""
    refresh_cycles: int = 140
    refresh_period: int = 3900

    @property
    def refresh_share(self) -> float:
        """Part of all cycles in which the DRAM refreshes."""
        return self.refresh_cycles / self.refresh_period if self.refresh_period else 0.0

    @model_validator(mode="after")
    def _check(self) -> Dram:
        _power_of_two("dram.banks", self.banks, 1, 64)
        _power_of_two("dram.row_bytes", self.row_bytes, 256, 8192)
        for name in ("latency", "row_miss", "turnaround", "refresh_cycles", "refresh_period"):
            value = getattr(self, name)
            if not 0 <= value <= 65535:
                raise ValueError(f"dram.{name} must be from 0 to 65535 cycles, not {value}")
        if not 1 <= self.beat_cycles <= 16:
            raise ValueError(f"dram.beat_cycles must be from 1 to 16, not {self.beat_cycles}")
        if self.latency < 4:
            raise ValueError(f"dram.latency must be at least 4 cycles, not {self.latency}")
        if self.refresh_period and self.refresh_period < 4 * self.refresh_cycles + 512:
            raise ValueError(
                "dram.refresh_period must be 0 (off) or at least 4 * refresh_cycles + 512 = "
                f"{4 * self.refresh_cycles + 512}, not {self.refresh_period}"
            )
        return self


class Host(_Frozen):
    """Host work charged by reports, in device cycles."""

    launch_cycles: int = 2000
    step_cycles: int = 500
    clock_mhz: int = 1000

    @model_validator(mode="after")
    def _check(self) -> Host:
        for name, low in (("launch_cycles", 0), ("step_cycles", 0), ("clock_mhz", 1)):
            if not low <= getattr(self, name) <= 10**9:
                raise ValueError(f"host.{name} must be from {low} to 10**9, not {getattr(self, name)}")
        return self


class Config(_Frozen):
    """One device instance. Derived sizes are properties."""

    name: str = "custom"
    dim: int = 16
    bus_bytes: int = 16
    spm_kib: int = 256
    spm_banks: int = 8
    acc_kib: int = 64
    acc_banks: int = 4
    preload: int = 2
    """Weight rows that enter the mesh per cycle (sub-banks of one scratchpad bank)."""
    burst_bytes: int = 256
    read_bursts: int = 16
    """Read bursts that the load unit keeps in flight."""
    read_beats: int = 1024
    """Beats of such bursts in flight, from which on it requests no other one."""
    load_commands: int = 4
    """Load commands between issue and finish."""
    write_bursts: int = 4
    """Write bursts whose response is outstanding."""
    fetch_queue: int = 32
    unit_queue: int = 8
    vector_passes: int = 1
    """Passes in which the vector unit takes a row: it has ``dim / vector_passes`` lanes."""
    stat_contexts: int = 4
    stat_rows: int = 64
    dividers: int = 4
    select_keys: int = 1024
    """Entries of the key memory (top-K) and of each bank of the importance memory."""
    list_entries: int = 2048
    """Entries of the index list memory, ``index_bits`` each."""
    index_bits: int = 18
    """Bits of an id, a list entry and the number of a DRAM row: vocabularies to 2 ** index_bits."""
    parameter_words: int = 512
    """Words of the parameter memory, 32 bits each, which PARAMS fills and SET reads."""
    comparison_modes: bool = True
    """I-BERT's i-exp, i-GELU and rounded mean, and Softermax's exponential, beside the device's own."""
    output_stationary: bool = True
    """The matrix unit's second dataflow."""
    transposition: bool = True
    """Operands of the matrix unit that lie transposed, such as the keys of an attention."""
    int4: bool = True
    """Weights of four bits, and their group scales."""
    address_bits: int = 32
    dram: Dram = Dram()
    host: Host = Host()

    @model_validator(mode="after")
    def _check(self) -> Config:
        if not NAME.fullmatch(self.name):
            raise ValueError(
                f"name must be 1 to 32 letters, digits, '_' or '-' (it names files), not {shown(self.name)}")
        _power_of_two("dim", self.dim, 2, 64)
        _power_of_two("bus_bytes", self.bus_bytes, 2, 64)
        if self.bus_bytes > self.dim:
            raise ValueError(f"bus_bytes must not exceed dim = {self.dim}, not {self.bus_bytes}")
        _power_of_two("spm_kib", self.spm_kib, 1, 1024)
        _power_of_two("acc_kib", self.acc_kib, 1, 1024)
        _power_of_two("spm_banks", self.spm_banks, 1, 16)
        _power_of_two("acc_banks", self.acc_banks, 1, 16)
        _power_of_two("preload", self.preload, 1, 4)
        if self.preload > self.dim:
            raise ValueError(f"preload must not exceed dim = {self.dim}, not {self.preload}")
        _power_of_two("vector_passes", self.vector_passes, 1, 4)
        if 2 * self.vector_passes > self.dim:
            raise ValueError(
                f"vector_passes must leave two lanes or more of dim = {self.dim}, not {self.vector_passes} passes "
                f"(at most {self.dim // 2})")
        _power_of_two("burst_bytes", self.burst_bytes, COMMAND_BYTES, 1024)
        if self.burst_bytes > self.dram.row_bytes:
            raise ValueError(
                f"burst_bytes must not exceed dram.row_bytes = {self.dram.row_bytes}, "
                f"not {self.burst_bytes}"
            )
        if not 1 <= self.burst_beats <= 256:
            raise ValueError(
                f"burst_bytes / bus_bytes must be 1 to 256 beats (AXI4), not {self.burst_beats}"
            )
        for name in ("spm_rows", "acc_rows"):
            if getattr(self, name) > 65536:
                raise ValueError(f"{name} must be at most 65536, not {getattr(self, name)}")
        if self.spm_bank_rows < max(self.dim, 16) or self.acc_bank_rows < self.dim:
            raise ValueError(
                "a bank must hold at least max(dim, 16) scratchpad rows and dim accumulator rows, "
                f"not {self.spm_bank_rows} and {self.acc_bank_rows}: use fewer banks"
            )
        for name, low, high in (
            ("read_bursts", 1, 64), ("read_beats", 1, 16384), ("load_commands", 1, 8), ("write_bursts", 1, 16),
            ("unit_queue", 4, 16), ("stat_contexts", 1, 16), ("dividers", 1, 16),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(
                    f"{name} must be from {low} to {high}, not {getattr(self, name)}"
                )
        _power_of_two("fetch_queue", self.fetch_queue, 32, 128)
        _power_of_two("stat_contexts", self.stat_contexts, 1, 16)
        _power_of_two("stat_rows", self.stat_rows, 4, 256)
        _power_of_two("select_keys", self.select_keys, 64, 8192)
        _power_of_two("list_entries", self.list_entries, 64, 16384)
        _power_of_two("parameter_words", self.parameter_words, 16, 4096)
        if self.index_bits not in INDEX_BITS:
            raise ValueError(f"index_bits must be {' or '.join(map(str, INDEX_BITS))}, not {self.index_bits}")
        if not 16 <= self.address_bits <= 48:
            raise ValueError(f"address_bits must be from 16 to 48, not {self.address_bits}")
        if self.burst_bytes // COMMAND_BYTES > self.fetch_queue:
            raise ValueError(
                f"burst_bytes must fit fetch_queue = {self.fetch_queue} commands, "
                f"not {self.burst_bytes}"
            )
        return self

    @property
    def sha256(self) -> str:
        """SHA-256 of all fields as JSON, keys sorted, without spaces: what outputs and exports name the device by."""
        text = json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def identity(self) -> int:
        """What the register ``CONFIGURATION`` reads: 32 bits of the SHA-256 over the fields that the RTL is made from.

        The name, the host's costs and the DRAM's timing change neither the RTL nor what its programs may do.
        """
        fields = self.model_dump(exclude={"name", "host", "dram"})
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    @property
    def features(self) -> frozenset[str]:
        """Those of :data:`gemmule.operations.FEATURES` that the device has."""
        return frozenset(name for name in FEATURES if getattr(self, name))

    @property
    def wide_indices(self) -> bool:
        """Whether an index has the most bits."""
        return self.index_bits == max(INDEX_BITS)

    @property
    def feature_bits(self) -> int:
        """:attr:`features` as bits, by the order of :data:`gemmule.operations.FEATURES`."""
        return sum((name in self.features) << bit for bit, name in enumerate(FEATURES))

    @property
    def lanes(self) -> int:
        """Lanes of the vector unit."""
        return self.dim // self.vector_passes

    @property
    def spm_rows(self) -> int:
        return self.spm_kib * 1024 // self.dim

    @property
    def acc_rows(self) -> int:
        return self.acc_kib * 1024 // (4 * self.dim)

    @property
    def spm_bank_rows(self) -> int:
        return self.spm_rows // self.spm_banks

    @property
    def acc_bank_rows(self) -> int:
        return self.acc_rows // self.acc_banks

    @property
    def burst_beats(self) -> int:
        return self.burst_bytes // self.bus_bytes

    @property
    def beats_bind(self) -> bool:
        """Whether the longest bursts reach ``read_beats`` before ``read_bursts``."""
        return (self.read_bursts - 1) * self.burst_beats >= self.read_beats

    @property
    def claim_bits(self) -> int:
        """Ports that claims name: SPM reads, SPM writes, ACC reads, ACC writes, by bank."""
        return 2 * self.spm_banks + 2 * self.acc_banks


def _checked(data: dict[str, Any], path: Path | None = None, lines: dict[str, int] | None = None) -> Config:
    """The configuration of a mapping; an error names the line of the field, or of one that the rule names."""
    try:
        config, words, text = Config.model_validate(data), ["name"], ""
    except ValidationError as error:
        field, text = first_problem(error, Config)
        words = [field, *re.findall(r"[a-z_]+(?:\.[a-z_]+)?", text)]
        if not field and words[1] in Config.model_fields and words[1] not in data:
            text += " (the default)"
    else:
        preset = config.name.lower()
        if preset not in PRESETS or config == _preset(preset):
            return config
        text = f"name must not be {config.name}, a preset with other fields than these: call it {preset}-mine"
    line = next((lines[word] for word in words if word in lines), None) if lines else None
    raise ConfigError(f"config: {f'{named(path, line)}: ' if path else ''}{text}")


@cache
def _preset(name: str) -> Config:
    return Config.model_validate(read_yaml(Path(__file__).resolve().parent / "presets" / f"{name}.yaml").values)


def load_config(source: str | Path | dict[str, Any]) -> Config:
    """Return a preset by name, a YAML file by path, or a mapping, checked.

    A file without ``name`` is named like the file where that is a legal name and no preset's, else ``custom``.

    Raises:
        ConfigError: with one sentence that names the file and line, the value, the rule and the fix.
    """
    if isinstance(source, dict):
        if not all(isinstance(key, str) for key in source):
            wrong = next(key for key in source if not isinstance(key, str))
            raise ConfigError(f"config: keys must be field names, not {shown(wrong)}")
        return _checked(source)
    if str(source) in PRESETS:
        return _preset(str(source))
    path = Path(source)
    if not os.path.lexists(source):
        raise ConfigError(
            f"config: {shown(str(source))} is neither a preset ({', '.join(PRESETS)}) nor a YAML "
            "file; give one of these names or a path")
    try:
        file = read_yaml(path)
    except ReadError as error:
        raise ConfigError(f"config: {named(path, error.line)}: {error}") from None
    values = file.values
    if "name" not in values and NAME.fullmatch(path.stem) and path.stem.lower() not in PRESETS:
        values["name"] = path.stem
    return _checked(values, path, file.lines)
