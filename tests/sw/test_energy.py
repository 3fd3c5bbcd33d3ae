"""Energy on the command line: what is printed and written, other tables, what is refused."""

import json
import re
from pathlib import Path

import pytest

from gemmule.sim.energy.table import ATTO, DEFAULT, PARTS

from .test_cli import run

GEMM = ("run", "gemm", "--shape", "12x16x8", "--config", "tiny")
BENCH = ("bench", "--model", "small", "--method", "ar,pld,draft", "--num-speculative-tokens", "3", "--category",
         "repetition", "--prompts", "2", "--max-new-tokens", "9")


def doubled(tmp_path: Path, event: str) -> Path:
    """The table that ships, with one price twice as high."""
    text = DEFAULT.read_text()
    found = re.search(rf'(?m)^  {event}:\n    pj: "([\d.]+)"\n', text)
    assert found is not None
    path = tmp_path / "doubled.yaml"
    path.write_text(text.replace(found[0], f'  {event}:\n    pj: "{2 * float(found[1]):.6f}"\n'))
    return path


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def added_up(energy: dict) -> int:
    """The total, which parts and events must give exactly."""
    events = sum(event["count"] * event["attojoules"] for event in energy["events"].values())
    assert events == energy["attojoules"] == sum(energy["attojoules_by_part"].values())
    assert list(energy["attojoules_by_part"]) == list(PARTS)
    assert energy["pj"] == energy["attojoules"] / ATTO
    return events


def test_a_product(monkeypatch, tmp_path, capsys) -> None:
    """And the same with DRAM bits twice as dear: more by their energy, exactly."""
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert run(monkeypatch, *GEMM, "--json", str(first)) == 0
    assert re.search(r"energy without the host \(sky130\): [\d,]+ pJ, [\d.]+\s+TOPS/W: ", capsys.readouterr().out)
    dear = doubled(tmp_path, "dram_read_bit")
    assert run(monkeypatch, *GEMM, "--energy", str(dear), "--json", str(second)) == 0
    plain, other = read(first)["energy"], read(second)["energy"]
    bits = plain["events"]["dram_read_bit"]
    assert added_up(other) - added_up(plain) == bits["count"] * bits["attojoules"] > 0
    assert plain["events"]["mac_int8"]["count"] == 12 * 16 * 8
    assert plain["tops_per_watt"] == pytest.approx(2 * 12 * 16 * 8 / plain["pj"])
    assert plain["pj_per_token"] is None


def test_every_method_of_a_bench(monkeypatch, tmp_path, capsys) -> None:
    """Energies of ar are the same in all rows; a method with fewer passes takes less; ``report`` prices again."""
    path, page = tmp_path / "bench.json", tmp_path / "bench.html"
    assert run(monkeypatch, *BENCH, "--json", str(path)) == 0
    shown = capsys.readouterr().out
    rows = read(path)["rows"]
    assert [row["method"] for row in rows] == ["ar", "pld", "draft"]
    for row in rows:
        assert added_up(row["energy"]) > 0
        assert row["energy_ar"] == rows[0]["energy"]
        assert row["energy"]["pj_per_token"] == pytest.approx(row["energy"]["pj"] / row["tokens"])
        assert f"{row['energy']['pj_per_token']:,.0f}" in shown
    assert run(monkeypatch, "report", str(path), "--html", str(page)) == 0
    assert f"{rows[1]['energy']['pj_per_token']:,.0f}" in capsys.readouterr().out
    assert "pJ per token" in page.read_text()
    assert run(monkeypatch, "report", str(path), "--html", str(page), "--energy",
               str(doubled(tmp_path, "mac_int8"))) == 0
    macs = rows[0]["energy"]["events"]["mac_int8"]
    dear = (rows[0]["energy"]["attojoules"] + macs["count"] * macs["attojoules"]) / ATTO / rows[0]["tokens"]
    assert f"{dear:,.0f}" in capsys.readouterr().out


def test_a_generation_and_its_baseline(monkeypatch, tmp_path, capsys) -> None:
    path = tmp_path / "text.json"
    assert run(monkeypatch, "generate", "--model", "small", "--method", "pld", "--max-new-tokens", "6", "--json",
               str(path)) == 0
    found = read(path)
    added_up(found["energy"])
    added_up(found["ar"]["energy"])
    bits = found["energy"]["events"]["dram_read_bit"]["count"] + found["energy"]["events"]["dram_write_bit"]["count"]
    assert bits == 8 * found["dram_bytes"]
    assert found["energy"]["events"]["cycle"]["count"] == found["device_cycles"]
    assert "pJ per token, without the host" in capsys.readouterr().out


def test_passes_of_a_model(monkeypatch, tmp_path) -> None:
    path = tmp_path / "pass.json"
    assert run(monkeypatch, "run", "model", "encoder", "--seq", "8", "--timing-only", "--json", str(path)) == 0
    found = read(path)
    assert found["energy"]["events"]["cycle"]["count"] == found["cycles"]
    assert found["energy"]["pj_per_token"] == pytest.approx(added_up(found["energy"]) / ATTO / 8)


@pytest.mark.parametrize("command", [GEMM, BENCH, ("generate", "--model", "small"),
                                     ("run", "model", "encoder", "--seq", "8")])
def test_a_broken_table_is_refused(monkeypatch, tmp_path, capsys, command) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("name: mine\n")
    assert run(monkeypatch, *command, "--energy", str(path)) == 2
    shown = capsys.readouterr().err.strip()
    assert shown.count("\n") == 0
    assert "broken.yaml: process is missing: write it" in shown


def test_a_record_of_another_device_is_not_priced_again(monkeypatch, tmp_path, capsys) -> None:
    path = tmp_path / "text.json"
    assert run(monkeypatch, "generate", "--model", "small", "--method", "ar", "--max-new-tokens", "3", "--json",
               str(path)) == 0
    record = read(path)
    path.write_text(json.dumps(record | {"config": "mine"}))
    capsys.readouterr()
    assert run(monkeypatch, "report", str(path), "--html", str(tmp_path / "a.html"), "--energy", str(DEFAULT)) == 2
    assert "must be of a preset (tiny, edge, base) of this version, not of 'mine'" in capsys.readouterr().err
    assert not (tmp_path / "a.html").exists()
