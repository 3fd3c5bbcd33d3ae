"""The comparison of decoding methods fits a terminal of 100 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gemmule.sw.reports.bench_table import BATCH, CASE, CAUSES, SPEEDUP, print_bench

ROW = {
    "category": "completion", "method": "draft", "warm": False, "verify": "rejection", "temperature": 0.8,
    "num_speculative_tokens": 15, "equal_to_ar": None, "prompts": 50, "speedup_over_ar": 10.25, "speedup_median": 10.5,
    "slower_than_ar": 1.0, "speedup_without_loops": 10.75, "looping": 8, "tokens_per_step": 11.5, "acceptance": 1.0,
    "distinct_4grams": 1.0, "draft_cost": 0.125, "theoretical_speedup": 12.5, "decode_speedup": 12.625,
    "roofline_fraction": 0.975, "batch_gain": 3.25, "break_even": 0.375,
    "lossless": True, "policy_equal": None,
}
PLAIN = ROW | {"method": "ar", "verify": "greedy", "temperature": 0.0, "equal_to_ar": 50, "speedup_without_loops": None,
               "theoretical_speedup": None, "batch_gain": None, "break_even": None}


def shown(*rows: dict[str, object]) -> list[str]:
    file = io.StringIO()
    print_bench(Console(file=file, width=100), rows, [])
    assert "…" not in file.getvalue(), "a cell was cut"
    return file.getvalue().splitlines()


@pytest.mark.parametrize("batched", [True, False])
def test_every_cell_is_whole_at_100_columns(batched: bool) -> None:
    lines = shown(ROW if batched else ROW | {"batch_gain": None})
    heads = ("completion", "draft rejection", "15", "0.8")
    gain = ("3.25x",) if batched else ()
    assert lines[0].split() == [word for head in CASE | SPEEDUP | (BATCH if batched else {}) for word in head.split()]
    assert lines[1].split() == [*" ".join((*heads, "-/50", "10.25x", "10.50x", "100%", "10.75x/42", *gain)).split()]
    assert lines[3].split() == [word for head in CASE | CAUSES for word in head.split()]
    assert lines[4].split() == ["completion", "draft", "15", "0.8", "11.50", "100%", "100%", "0.125", "38%", "12.50x",
                                "101.0%", "97.5%"]
    assert lines[5].split() == ["rejection"], "the widest numbers leave a method two lines"


def test_lossy_methods_are_marked() -> None:
    lines = shown(PLAIN, PLAIN | {"method": "skipdecode", "lossless": False, "policy_equal": 50, "equal_to_ar": 3})
    assert lines[0].split()[-2:] == ["lossless", "policy_equal"]
    assert lines[1].split()[-2:] == ["yes", "-"]
    assert lines[2].split()[-2:] == ["no", "50/50"]


def test_what_a_row_lacks_is_a_dash() -> None:
    lines = shown(PLAIN)
    assert lines[1].split() == ["completion", "ar", "15", "0", "50/50", "10.25x", "10.50x", "100%", "-"]
    assert lines[4].split() == ["completion", "ar", "15", "0", "11.50", "100%", "100%", "-", "-", "-", "-", "97.5%"]
