"""The page of configuration fields: meaning, unit, range, default, effect, presets."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from gemmule.config import PRESETS, Config, Dram, Host, load_config
from gemmule.sw.reports.markdown import wrapped

__all__ = ["FIELDS", "Field", "configuration_page"]


@dataclass(frozen=True)
class Field:
    """What the page says of a field. ``low`` and ``high`` are its range as such; ``rule`` narrows it with others."""

    name: str
    """As in a file: ``dram.latency``."""
    unit: str
    meaning: str
    effect: str
    low: int = 0
    high: int = 0
    power: bool = False
    """Only powers of two."""
    zero: bool = False
    """0 is allowed below ``low``: off."""
    rule: str = ""

    @property
    def range(self) -> str:
        if not self.unit:
            return self.rule
        text = f"power of two, {self.low:,} to {self.high:,}" if self.power else f"{self.low:,} to {self.high:,}"
        text = f"0 (off) or {text}" if self.zero else text
        return f"{text}; {self.rule}" if self.rule else text


FIELDS: dict[str, tuple[Field, ...]] = {
    "Array and bus": (
        Field("name", "", "name in reports and generated files", "none",
              rule="1 to 32 letters, digits, `_`, `-`; a preset's name only for that preset"),
        Field("dim", "PEs, lanes", "DIM: rows and columns of the mesh, elements of a memory row",
              "peak of DIM² products per cycle; tiles are DIM x DIM", 2, 64, power=True),
        Field("bus_bytes", "bytes", "width of the AXI4 data bus", "DRAM bandwidth: `bus_bytes / dram.beat_cycles`",
              2, 64, power=True, rule="at most `dim`"),
        Field("preload", "rows a cycle", "weight rows that enter the mesh per cycle, sub-banks of a scratchpad bank",
              "a tile takes at least `dim / preload` cycles: the cost of few rows", 1, 4, power=True,
              rule="at most `dim`"),
        Field("address_bits", "bits", "width of DRAM addresses, base and limit registers",
              "a program and its data must be below 2^`address_bits`", 16, 48),
    ),
    "Memories": (
        Field("spm_kib", "KiB", "scratchpad", "data kept on chip: weights in flight, keys and values, activations",
              1, 1024, power=True, rule="at most 65,536 rows of `dim` bytes"),
        Field("spm_banks", "banks", "scratchpad banks, each with one read and one write port",
              "streams in different banks run in parallel", 1, 16, power=True,
              rule="a bank holds at least max(`dim`, 16) rows"),
        Field("acc_kib", "KiB", "accumulator", "rows of C, scores and contexts that a pass can hold", 1, 1024,
              power=True, rule="at most 65,536 rows of `4 * dim` bytes"),
        Field("acc_banks", "banks", "accumulator banks, each with one read and one write port",
              "one product can be written while the previous one is read", 1, 16, power=True,
              rule="a bank holds at least `dim` rows"),
    ),
    "Load, store, commands": (
        Field("burst_bytes", "bytes", "longest AXI burst; bursts end at its multiples",
              "longer bursts hide DRAM latency and row misses with fewer in flight", 32, 1024, power=True,
              rule="at most 256 beats, `dram.row_bytes`, and 32 times `fetch_queue`"),
        Field("read_bursts", "bursts", "read bursts that the load unit keeps in flight",
              "bandwidth of short rows needs (latency + burst) times the bus in flight", 1, 64),
        Field("read_beats", "beats", "beats of such bursts in flight at which no further burst is requested",
              "bandwidth of long rows needs (latency + row miss) in flight; fetch waits behind anything more", 1,
              16384),
        Field("load_commands", "commands", "load commands between issue and finish",
              "short loads hide latency only across commands", 1, 8),
        Field("write_bursts", "bursts", "write bursts whose response is outstanding", "store bandwidth", 1, 16),
        Field("fetch_queue", "commands", "commands fetched ahead", "hides the latency of fetching the program",
              32, 128, power=True),
        Field("parameter_words", "words", "parameter memory, 32 bits a word: PARAMS fills it, SET reads it",
              "numbers that a launch can load and read by index", 16, 4096, power=True),
        Field("unit_queue", "commands", "commands that wait at each unit",
              "how far dispatch, which is in order, runs ahead of the slowest unit", 4, 16),
    ),
    "Matrix unit: what may be left out": (
        Field("output_stationary", "", "the second dataflow, which keeps sums in the mesh",
              "area; without it, OUTPUT_STATIONARY is illegal and products are weight-stationary",
              rule="`true` or `false`"),
        Field("transposition", "", "operands that lie transposed, such as the keys of an attention",
              "area; without it, A_TRANSPOSED and B_TRANSPOSED are illegal, and networks with attention cannot be "
              "compiled", rule="`true` or `false`"),
        Field("int4", "", "int4 weights, with and without group scales",
              "area; without it, B_INT4 is illegal, and int8 is what networks can have", rule="`true` or `false`"),
    ),
    "Vector unit": (
        Field("vector_passes", "passes", "parts in which a row is processed: the unit has `dim / vector_passes` lanes",
              "trades area for cycles of the vector unit", 1, 4, power=True, rule="two lanes or more"),
        Field("stat_contexts", "contexts", "statistics contexts: maximum, sum, reciprocal, mean of rows",
              "heads in flight", 1, 16, power=True),
        Field("stat_rows", "rows", "rows of a statistics context", "rows of one softmax or norm command", 4, 256,
              power=True),
        Field("dividers", "dividers", "serial dividers for reciprocals and roots", "time of statistics of many rows",
              1, 16),
        Field("comparison_modes", "", "I-BERT's i-exp, i-GELU and rounded mean, Softermax's exponential",
              "area; without them, commands that need them are illegal", rule="`true` or `false`"),
    ),
    "Select unit": (
        Field("select_keys", "keys", "key memory (top-K) and each bank of the importance memory",
              "longest top-K, most positions with importance", 64, 8192, power=True),
        Field("list_entries", "entries", "index list memory, `index_bits` an entry",
              "rows of gathers, scatters and greedy tokens held at once", 64, 16384, power=True),
        Field("index_bits", "bits", "an index: the id of a token, a list entry, the number of a gathered DRAM row",
              "vocabularies of up to 2^`index_bits` tokens, at the cost of wide lists, keys and running maxima", 16, 18,
              rule="16 or 18"),
    ),
    "DRAM (behavioural: testbench and model)": (
        Field("dram.latency", "cycles", "from a prepared row to a burst's first beat", "latency for loads to hide", 4,
              65535),
        Field("dram.banks", "banks", "banks with one open row each", "misses in different banks overlap", 1, 64,
              power=True),
        Field("dram.row_bytes", "bytes", "a row of a bank; bursts do not span rows", "how often rows miss", 256, 8192,
              power=True, rule="at least `burst_bytes`"),
        Field("dram.row_miss", "cycles", "closing a row and opening another", "cost of a miss that is not hidden", 0,
              65535),
        Field("dram.turnaround", "cycles", "between a read and a write burst", "cost of mixing loads and stores", 0,
              65535),
        Field("dram.beat_cycles", "cycles", "cycles of a bus beat", "divides the bandwidth", 1, 16),
        Field("dram.refresh_cycles", "cycles", "length of a refresh", "share of time without data", 0, 65535,
              rule="see `dram.refresh_period`"),
        Field("dram.refresh_period", "cycles", "from refresh to refresh", "share of time without data", 512, 65535,
              zero=True, rule="at least 4 * `refresh_cycles` + 512"),
    ),
    "Host (charged in reports, not simulated)": (
        Field("host.launch_cycles", "cycles", "host work for a launch", "cycles per token", 0, 10**9),
        Field("host.step_cycles", "cycles", "host work for a decoding step", "cycles per token", 0, 10**9),
        Field("host.clock_mhz", "MHz", "device clock, to print times", "seconds in reports; no cycles", 1, 10**9),
    ),
}

INTRO = """\
# Configuration

Generated by `python -m gemmule.sw.pages` from [gemmule/config.py](../gemmule/config.py); do not
edit.

A device is a YAML file with the fields below. Missing fields keep their defaults; unknown fields are
refused. `--config` of every command takes a preset's name or a path:

    gemmule run gemm --config edge --shape 512x768x768
    gemmule run gemm --config my.yaml --shape 512x768x768

```yaml
name: wide_bus        # my.yaml
dim: 32
bus_bytes: 32
dram:
  latency: 100
```

A file may use only the YAML that every version reads in the same way: fields, decimal integers
(`8`, not `010`, `0x8`, `8.0` or `1_000`), `true` and `false` (not `yes` or `on`), text, comments.
Anchors, tags, lists, several documents and repeated fields are refused, as are files of more than
64 KiB. A file without `name` takes its file name, here `my`, or `custom` if that is not a legal
name. A preset's name may be used only for that preset.

The presets are in [gemmule/presets](../gemmule/presets). More examples, which the fuzzer also runs,
are in [examples/configs](../examples/configs). The message for a value outside its range names file
and line, the field, the rule and the value: see [limits.md](limits.md).
"""

OUTRO = """\
## Derived

| size | formula | {names} |
|---|---|{rule}|
{rows}

*Roofline bandwidth* is `bus_bytes / dram.beat_cycles` times one less the share of refresh,
`refresh_cycles / refresh_period`.
"""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def value_of(config: BaseModel, name: str) -> object:
    """The value of a field by its name in a file."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def configuration_page() -> str:
    """The page."""
    presets = [load_config(name) for name in PRESETS]
    default = Config(dram=Dram(), host=Host())
    head = f"| field | meaning | unit | range | default | {' | '.join(PRESETS)} | effect |"
    lines = [INTRO]
    for title, fields in FIELDS.items():
        lines += [f"## {title}", "", head, "|---|---|---|---|---|" + "---|" * len(PRESETS) + "---|"]
        for field in fields:
            values = [_shown(value_of(preset, field.name)) for preset in presets]
            cells = (f"`{field.name}`", field.meaning, field.unit or "-", field.range,
                     _shown(value_of(default, field.name)), *values, field.effect)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    sizes = (
        ("lanes of the vector unit", "`dim / vector_passes`", "lanes"),
        ("scratchpad rows", "`spm_kib * 1024 / dim`", "spm_rows"),
        ("rows of a scratchpad bank", "`spm_rows / spm_banks`", "spm_bank_rows"),
        ("accumulator rows", "`acc_kib * 1024 / (4 * dim)`", "acc_rows"),
        ("rows of an accumulator bank", "`acc_rows / acc_banks`", "acc_bank_rows"),
        ("beats of the longest burst", "`burst_bytes / bus_bytes`", "burst_beats"),
        ("ports that claims name", "`2 * spm_banks + 2 * acc_banks`", "claim_bits"),
    )
    rows = "\n".join(
        f"| {name} | {formula} | {' | '.join(_shown(getattr(preset, attribute)) for preset in presets)} |"
        for name, formula, attribute in sizes)
    lines.append(OUTRO.format(names=" | ".join(PRESETS), rule="---|" * (len(PRESETS) - 1) + "---", rows=rows))
    return wrapped("\n".join(lines))
