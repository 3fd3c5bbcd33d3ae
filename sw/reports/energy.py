"""Energy of runs: records, lines and tables, by a table of energies per event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gemmule.config import Config
from gemmule.sim.energy.table import ATTO, EVENTS, PARTS, EnergyTable

__all__ = ["bench_rows", "energy_line", "energy_record", "energy_shares", "print_energy",
           "priced_again"]

_SHARES = {"clock": ("clock",), "logic": ("front end", "load", "store", "matrix", "vector", "select"),
           "memories": ("scratchpad", "accumulator"), "DRAM": ("DRAM",)}
"""Columns of a bench's table, and the parts of the device that they sum."""
LEGEND = ("energy: device and DRAM without the host, by the table {}; prompt included; of ar: divided by that of ar; "
          "then shares of the clock, of the units' logic, of scratchpad and accumulator, of DRAM")


def energy_record(events: Mapping[str, int] | None, config: Config, table: EnergyTable, *, tokens: int | None = None,
                  operations: int | None = None) -> dict[str, Any] | None:
    """What JSON says of counted events; None: they are not known.

    ``tokens``: new ones. ``operations``: two for each multiply-accumulate of the workload.
    """
    if not events:
        return None
    energy = table.energy(events, config)
    return {
        "table": energy.table,
        "events": {event: {"count": count, "attojoules": price} for event, (count, price) in energy.events.items()},
        "attojoules": energy.atto, "attojoules_by_part": energy.by_part, "pj": energy.pj,
        "pj_per_token": None if tokens is None else energy.pj / max(1, tokens),
        "tops_per_watt": None if operations is None else operations / energy.pj}


def bench_rows(rows: Sequence[Mapping[str, Any]], config: Config, table: EnergyTable) -> list[dict[str, Any]]:
    """Rows of a bench with the energy of their counted events, and that of autoregressive decoding beside it."""
    found = []
    for row in rows:
        own, ar = (energy_record(row[events], config, table, tokens=row[tokens])
                   for events, tokens in (("events", "tokens"), ("events_ar", "tokens_ar")))
        kept = {name: value for name, value in row.items() if name not in ("events", "events_ar", "tokens_ar")}
        found.append(kept | {"energy": own, "energy_ar": ar})
    return found


def priced_again(record: Mapping[str, Any], config: Config, table: EnergyTable) -> dict[str, Any]:
    """An energy of a record, by another table."""
    events = {event: record["events"][event]["count"] for event in EVENTS}
    found = energy_record(events, config, table)
    assert found is not None, "a record has events"
    scale = found["pj"] / record["pj"] if record["pj"] else 1.0
    for name, factor in (("pj_per_token", scale), ("tops_per_watt", 1 / scale if scale else 1.0)):
        if record.get(name) is not None:
            found[name] = record[name] * factor
    return found


def energy_shares(record: Mapping[str, Any]) -> dict[str, float]:
    """Share of each part of the device."""
    whole = max(1, record["attojoules"])
    return {part: record["attojoules_by_part"][part] / whole for part in PARTS}


def energy_line(record: Mapping[str, Any]) -> str:
    """One sentence: the energy, its shares by part from the largest on."""
    shares = sorted(energy_shares(record).items(), key=lambda item: -item[1])
    told = ", ".join(f"{part} {share:.1%}" for part, share in shares if share >= 0.0005)
    per = ""
    if record.get("pj_per_token") is not None:
        per = f", {record['pj_per_token']:,.0f} pJ per token"
    if record.get("tops_per_watt") is not None:
        per += f", {record['tops_per_watt']:.3g} TOPS/W"
    return f"energy without the host ({record['table']}): {record['attojoules'] // ATTO:,} pJ{per}: {told}"


def print_energy(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each row of a bench that has an energy, and what the columns mean."""
    told = [row for row in rows if row.get("energy")]
    if not told:
        return
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for head in ("category", "method", "drafts", "pJ per token", "of ar", *_SHARES):
        table.add_column(head, justify="left" if head in ("category", "method") else "right")
    for row in told:
        energy, ar = row["energy"], row.get("energy_ar")
        shares = energy_shares(energy)
        table.add_row(row["category"], row["method"] + " warm" * row["warm"], str(row["num_speculative_tokens"]),
                      f"{energy['pj_per_token']:,.0f}",
                      f"{energy['pj_per_token'] / ar['pj_per_token']:.2f}" if ar else "-",
                      *(f"{sum(shares[part] for part in parts):.0%}" for parts in _SHARES.values()))
    console.print()
    console.print(table)
    console.print(LEGEND.format(told[0]["energy"]["table"]), markup=False, style="dim")
