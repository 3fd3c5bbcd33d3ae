"""The table of energies: exact sums, a price that moves what it must, one line for every broken file."""

import re
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import PRESETS, load_config
from gemmule.sim.energy.table import ATTO, DEFAULT, EVENTS, PARTS, EnergyError, load_energy

BASE = load_config("base")


def counts(seed: int) -> dict[str, int]:
    random = np.random.default_rng(seed)
    return {event: int(random.integers(0, 10**random.integers(1, 13))) for event in EVENTS}


def changed(tmp_path: Path, before: str, after: str) -> Path:
    text = DEFAULT.read_text()
    assert before in text
    path = tmp_path / "other.yaml"
    path.write_text(text.replace(before, after, 1))
    return path


def block(event: str) -> str:
    found = re.search(rf"(?m)^  {event}:\n(?:    .*\n)+", DEFAULT.read_text())
    assert found is not None
    return found[0]


@pytest.mark.parametrize("seed", range(20))
def test_parts_add_up_to_the_last_digit(seed: int) -> None:
    energy = load_energy().energy(counts(seed), BASE)
    assert sum(energy.by_part.values()) == energy.atto == sum(
        count * load_energy().price(event, BASE) for event, count in counts(seed).items())
    assert tuple(energy.by_part) == PARTS


@pytest.mark.parametrize("event", EVENTS)
def test_a_doubled_price_moves_the_energy_by_exactly_that_event(event: str, tmp_path: Path) -> None:
    """And nothing else: its part alone grows, by its count times its price."""
    mine = block(event)
    doubled = re.sub(r'(pj(?:_per_\w+)?): "(\d+)(?:\.(\d+))?"', lambda found: (
        f'{found[1]}: "{2 * int(found[2] + (found[3] or "").ljust(6, "0")) / ATTO:.6f}"'), mine)
    assert doubled != mine or '"0"' in mine
    other = load_energy(changed(tmp_path, mine, doubled))
    events = counts(3)
    plain, dear = load_energy().energy(events, BASE), other.energy(events, BASE)
    cost = events[event] * load_energy().price(event, BASE)
    assert dear.atto - plain.atto == cost
    part = EVENTS[event][0]
    assert {name: dear.by_part[name] - plain.by_part[name] for name in PARTS} == dict.fromkeys(PARTS, 0) | {part: cost}


def test_sizes_of_the_device_count() -> None:
    """Rows by their bits, a cycle by the flip-flops."""
    table = load_energy()
    devices = [load_config(name) for name in PRESETS]
    for event, bits in (("spm_read", 8), ("acc_write", 32)):
        price = table.prices[event]
        assert [table.price(event, device) for device in devices] == [
            price.fixed + price.by_size * bits * device.dim for device in devices]
    cycles = [table.price("cycle", device) for device in devices]
    assert sorted(cycles) == cycles
    assert cycles[0] < cycles[2]
    assert len({table.price("mac_int8", device) for device in devices}) == 1


@pytest.mark.parametrize(("before", "after", "message"), [
    ("name: sky130", "nom: sky130", "name is missing: write it"),
    ("  mac_int8:", "  mac_int9:", "events.mac_int8 is missing: write it"),
    ("  fixed:", "  fixed: -1\n  other:", "flip_flops.other is not known: it must be one of fixed, per_dim, per_pe"),
    ("    pj_per_flip_flop:", "    pj_per_row:", "events.cycle.pj_per_flip_flop is missing: write it"),
    ("    source:", "    sources:", "events.cycle.source is missing: write it"),
    ("flip_flops:\n", "flip_flops: 3\nother:\n", "other is not known"),
])
def test_a_broken_table_is_one_line(before: str, after: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EnergyError, match=re.escape(message)) as error:
        load_energy(changed(tmp_path, before, after))
    assert "\n" not in str(error.value)
    assert re.match(r"energy: .*other\.yaml:?\d*: ", str(error.value))


@pytest.mark.parametrize("value", ['"-1"', '"1.1234567"', '"1e3"', "true", '"99999999999"', '"nan"', '""'])
def test_a_price_must_be_a_plain_decimal(value: str, tmp_path: Path) -> None:
    mine = block("key")
    path = changed(tmp_path, mine, re.sub(r'pj: ".*"', f"pj: {value}", mine))
    with pytest.raises(EnergyError, match=r"other\.yaml:\d+: events\.key\.pj must be pJ from 0 to 10\*\*9"):
        load_energy(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EnergyError, match="energy: .*none.yaml: "):
        load_energy(tmp_path / "none.yaml")
