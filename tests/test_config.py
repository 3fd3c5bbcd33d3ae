"""Presets load; every illegal mix is refused with one sentence."""

from pathlib import Path

import pytest

import gemmule
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
    ({"dram": {"latency": 1}}, "config: dram.latency must be at least 4 cycles, not 1"),
    ({"dimension": 4}, "config: dimension: unknown key; did you mean dim?"),
    ({"zzz": 4}, "config: zzz: unknown key; keys: name, dim"),
    ({"dim": "16"}, "config: dim must be an integer, not '16'"),
    ({"name": "../evil"}, "config: name must be 1 to 32 letters, digits, '_' or '-'"),
    ({"host": {"step_cycles": -1}}, "config: host.step_cycles must be from 0 to 10**9, not -1"),
    ({"dram": {"latncy": 5}}, "config: dram.latncy: unknown key; did you mean latency?"),
    ({"dram": 5}, "config: dram must hold fields of its own, not 5"),
    ({"comparison_modes": 1}, "config: comparison_modes must be true or false, not 1"),
    ({"dim": 16.0}, "config: dim must be an integer, not 16.0"),
    ({"name": "base", "dim": 8, "bus_bytes": 8},
     "config: name must not be base, a preset with other fields than these: call it base-mine"),
    ({"name": "Tiny"}, "config: name must not be Tiny, a preset"),
    ({4: 4}, "config: keys must be field names, not 4"),
    ({"spm_banks": 3}, "config: spm_banks must be a power of two from 1 to 16, not 3"),
    ({"dram": {"beat_cycles": 0}}, "config: dram.beat_cycles must be from 1 to 16, not 0"),
    ({"dram": {"refresh_period": 100}}, "config: dram.refresh_period must be 0 (off) or at least"),
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


def test_preset_by_path_is_the_preset() -> None:
    tiny = load_config("tiny")
    assert load_config(Path(gemmule.__file__).parent / "presets" / "tiny.yaml") == tiny
    assert load_config(tiny.model_dump()) == tiny


@pytest.mark.parametrize(("text", "line", "message"), [
    ("dim: [", 1, "dim must be one value, not a list"),
    ("dim: 8: 16", 1, "not YAML: mapping values are not allowed here"),
    ("1: 4", 1, "keys must be field names, not '1'"),
    ("\ndim: 3", 2, "dim must be a power of two"),
    ("# a\ndim: 8\n", 2, "bus_bytes must not exceed dim = 8, not 16"),
    ("dim: 16\ndram:\n  latency: 60\n  banks: 3", 4, "dram.banks must be a power of two"),
    ("dim: 16\nname: edge", 2, "name must not be edge, a preset with other fields"),
    ("dim: 8\nbus_bytes: 8\ndim: 16", 3, "dim stands twice, first in line 1: keep one"),
])
def test_message_names_the_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(bad)
    assert str(error.value).startswith(f"config: {bad}:{line}: {message}")


@pytest.mark.parametrize("written", [
    "010", "08", "0o10", "0x10", "0b100", "1_6", "1:30", "1e1", "16.0", "1e400", ".nan", ".inf", "2026-02-31",
    "2026-02-28", "yes", "no", "on", "OFF", "y", "~", "null", "", "<<", "=",
])
def test_what_readers_of_yaml_read_differently_is_refused(tmp_path: Path, written: str) -> None:
    """For a field of numbers, of truth and of text alike: no value is changed in silence."""
    file = tmp_path / "odd.yaml"
    for name in ("dim", "comparison_modes", "name"):
        file.write_text(f"{name}: {written}\n")
        with pytest.raises(ConfigError, match=rf"odd.yaml:1: {name} "):
            load_config(file)


@pytest.mark.parametrize(("written", "value"), [("true", True), ("False", False), ("TRUE", True)])
def test_truth(tmp_path: Path, written: str, value: bool) -> None:
    file = tmp_path / "truth.yaml"
    file.write_text(f"comparison_modes: {written}")
    assert load_config(file).comparison_modes is value


def test_a_file_without_a_name_is_named_like_itself(tmp_path: Path) -> None:
    for stem, name in (("wide-bus_2", "wide-bus_2"), ("wide bus", "custom"), ("base", "custom"), ("x" * 33, "custom")):
        file = tmp_path / f"{stem}.yaml"
        file.write_bytes(b"\xef\xbb\xbfdim: 8\r\nbus_bytes: 8\r\n")  # as an editor may save it
        assert load_config(file).name == name
        assert load_config(file).dim == 8
    file.write_text("name: mine")
    assert load_config(file).name == "mine"


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a preset"):
        load_config("huge")
    with pytest.raises(ConfigError, match="must be a regular file, not a folder"):
        load_config(tmp_path)
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="must be UTF-8 text; byte 0 is not"):
        load_config(bad)


def test_a_default_that_breaks_a_rule_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("dim: 8\n")
    with pytest.raises(ConfigError, match=r"bus_bytes must not exceed dim = 8, not 16 \(the default\)"):
        load_config(path)
