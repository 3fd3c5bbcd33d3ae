"""``gemmule info``: a device's memories, peaks and ridge, and which known networks fit it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gemmule.sw.commands.shared.common import ConfigOption, JsonOption, Output, conditions, read_config

__all__ = ["info"]


def info(
    config: ConfigOption = "base",
    networks: Annotated[bool, typer.Option(
        "--networks/--no-networks", help="Also check which known architectures fit, by compiling "
                                         "their layers.")] = True,
    json: JsonOption = None,
) -> None:
    """Sizes and bandwidths of a device, and what fits it.

    The ridge is the number of MACs per byte of DRAM above which the mesh, not the bus, is the limit. A network fits if
    a layer's decode step compiles; its longest context is limited by its positions and the address space.

    \b
    Examples:
      gemmule info --config edge --no-networks
      gemmule info
    """
    out, device = Output(json), read_config(config)

    from gemmule.io.progress import counting
    from gemmule.sw.limits import ARCHITECTURES
    from gemmule.sw.workloads.capacity import fits, memories, peaks

    rows, found = [], peaks(device)
    if networks:
        with counting("networks", len(ARCHITECTURES), lines=False) as tell:
            for i, row in enumerate(fits(device), 1):
                rows.append(row)
                tell(i, row["name"])
    out.print(conditions(device), style="dim")
    _print(out, memories(device), found, rows)
    out.write("info", device, found | {"memories": memories(device), "networks": rows if networks else None})


def _print(out: Output, memories: list[dict[str, Any]], peaks: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("memory", "bytes", "banks", "read a cycle", "written a cycle"):
        table.add_column(name, justify="left" if name == "memory" else "right")
    for part in memories:
        table.add_row(part["name"], f"{part['bytes']:,}", str(part["banks"]), f"{part['read_bytes_per_cycle']:,g}",
                      f"{part['write_bytes_per_cycle']:,g}")
    out.console.print(table)
    out.print(f"peak: {peaks['macs_per_cycle']:,} MACs a cycle ({peaks['macs_per_second'] / 1e9:,.4g} G a second), "
              f"{peaks['dram_bytes_per_cycle']:.2f} bytes of DRAM a cycle outside refresh "
              f"({peaks['dram_bytes_per_second'] / 1e9:.3g} GB a second); ridge at "
              f"{peaks['ridge_macs_per_byte']:.2f} MACs a byte")
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("network", "weight bytes", "KV a position", "tokens a second at most", "longest context", "limit"):
        table.add_column(name, justify="left" if name in ("network", "limit") else "right")
    for row in rows:
        rate = row["tokens_per_second_at_most"]
        sizes = (row[key] for key in ("weight_bytes", "kv_bytes_per_position"))
        table.add_row(row["name"], *(f"{size:,}" if size else "-" for size in sizes), f"{rate:.3g}" if rate else "-",
                      f"{row['context']:,}" if row["context"] else "-", row["limit"])
    out.console.print(table)
