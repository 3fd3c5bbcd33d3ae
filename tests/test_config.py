"""Presets load; every illegal mix is refused with one sentence."""

import pytest

from gemmule.config import PRESETS, ConfigError, load_config


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str) -> None:
    config = load_config(name)
    assert config.name == name
    assert config.spm_rows * config.dim == config.spm_kib * 1024
    assert config.acc_rows * config.dim * 4 == config.acc_kib * 1024


def test_base_has_the_sizes_that_results_are_compared_at() -> None:
    config = load_config("base")
    assert (config.dim, config.bus_bytes, config.spm_rows, config.acc_rows) == (16, 16, 16384, 1024)
    assert (config.spm_banks, config.acc_banks) == (8, 4)
    dram = config.dram
    assert (dram.latency, dram.banks, dram.row_bytes, dram.row_miss) == (60, 8, 2048, 28)
    assert (dram.refresh_cycles, dram.refresh_period) == (140, 3900)
    assert (config.host.launch_cycles, config.host.step_cycles) == (2000, 500)


@pytest.mark.parametrize(("change", "message"), [
    ({"dim": 3}, "config: dim must be a power of two from 2 to 64, not 3"),
    ({"dim": 128}, "config: dim must be a power of two from 2 to 64, not 128"),
    ({"bus_bytes": 32}, "config: bus_bytes must not exceed dim = 16, not 32"),
    ({"preload": 3}, "config: preload must be a power of two from 1 to 4, not 3"),
    ({"unit_queue": 2}, "config: unit_queue must be from 4 to 16, not 2"),
    ({"burst_bytes": 4096}, "config: burst_bytes must be a power of two from 32 to 1024, not 4096"),
    ({"dram": {"latency": 1}}, "config: dram: dram.latency must be at least 4 cycles, not 1"),
    ({"dimension": 4}, "config: dimension: unknown key; known keys: name, dim"),
    ({"dim": "16"}, "config: dim: Input should be a valid integer, not '16'"),
    ({"name": "../evil"}, "config: name must be 1 to 32 letters, digits, '_' or '-'"),
    ({"host": {"step_cycles": -1}}, "config: host: host.step_cycles must be from 0 to 10**9, not -1"),
    ({"dram": {"latncy": 5}}, "config: dram.latncy: unknown key; known keys: latency, banks"),
    ({"spm_banks": 3}, "config: spm_banks must be a power of two from 1 to 16, not 3"),
    ({"dram": {"beat_cycles": 0}}, "config: dram: dram.beat_cycles must be from 1 to 16, not 0"),
    ({"dram": {"refresh_period": 100}}, "config: dram: dram.refresh_period must be 0 (off) or at least"),
    ({"spm_kib": 1, "spm_banks": 16}, "config: a bank must hold at least max(dim, 16) scratchpad rows"),
    ({"acc_kib": 1, "acc_banks": 16}, "config: a bank must hold at least max(dim, 16) scratchpad rows and dim acc"),
    ({"dim": 2, "preload": 4, "bus_bytes": 2}, "config: preload must not exceed dim = 2, not 4"),
    ({"dim": 2, "bus_bytes": 2, "preload": 2, "burst_bytes": 1024}, "config: burst_bytes / bus_bytes must be 1 to 256"),
    ({"dim": 4, "bus_bytes": 4, "spm_kib": 512}, "config: spm_rows must be at most 65536, not 131072"),
    ({"address_bits": 12}, "config: address_bits must be from 16 to 48, not 12"),
    ({"stat_rows": 3}, "config: stat_rows must be a power of two from 4 to 256, not 3"),
    ({"vector_passes": 3}, "config: vector_passes must be a power of two from 1 to 4, not 3"),
    ({"dim": 4, "bus_bytes": 4, "vector_passes": 4},
     "config: vector_passes must leave two lanes or more of dim = 4, not 4 passes (at most 2)"),
    ({"fetch_queue": 16}, "config: fetch_queue must be a power of two from 32 to 128, not 16"),
])
def test_illegal_mixes(change: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(change)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_unknown_name_and_bad_yaml(tmp_path) -> None:
    with pytest.raises(ConfigError, match="neither a preset"):
        load_config("huge")
    bad = tmp_path / "bad.yaml"
    bad.write_text("dim: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read as UTF-8 text"):
        load_config(bad)
    bad.write_text("1: 4")
    with pytest.raises(ConfigError, match="keys must be field names, not 1"):
        load_config(bad)
    good = tmp_path / "good.yaml"
    good.write_text("dim: 8\nbus_bytes: 8\n")
    assert load_config(good).dim == 8
