"""Generated pages are in step; links, names, numbers and messages of the documentation are real."""

import ast
import re
import runpy
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from amaranth.hdl import Shape

from gemmule.config import PRESETS, Config, ConfigError, Dram, Host, load_config
from gemmule.csr import Csr
from gemmule.hw.command.claims import _STREAM_PARTS
from gemmule.hw.matrix.mesh import Mesh
from gemmule.isa import NUM_BASES, NUM_LENGTHS, Command, Length, Unit, encode_program
from gemmule.resolve import FAULTS, STREAM_UNIT, STREAMS
from gemmule.sim.stream import stream_of
from gemmule.sw.pages import PAGES
from gemmule.sw.pages import mesh as mesh_figure
from gemmule.sw.pages.code_map import FOLDERS, SUFFIXES, Folder, files_of, first_line
from gemmule.sw.pages.configuration import FIELDS, Field, value_of
from gemmule.sw.pages.ports import ports_of_block
from gemmule.sw.pages.registers import FAULT_MEANING, REGISTERS
from gemmule.sw.pages.system import memory_paths
from gemmule.sw.reports.markdown import too_long, wrapped
from gemmule.terms import OUT

from .hw.bench import run_bench

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES_READ = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md"), *(ROOT / "tests").rglob("*.md")])


def all_of(pattern: str) -> list[Path]:
    return sorted(path for path in ROOT.glob(pattern) if "__pycache__" not in path.parts)


def links(page: Path) -> list[str]:
    """Targets of a page's links that are files, without anchors."""
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    return [unquote(target) for target in found if not target.startswith(("http:", "https:"))]


def linked(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in links(page)}


# Generated pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_generated(name: str) -> None:
    assert (ROOT / name).read_text() == PAGES[name](), "run: make pages"


@pytest.mark.parametrize("page", PAGES_READ, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page: Path) -> None:
    for target in links(page):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES_READ, ids=lambda p: str(p.relative_to(ROOT)))
def test_lines_can_be_read_in_an_editor(page: Path) -> None:
    lines = too_long(page.read_text())
    assert not lines, f"{page.name}: lines {lines} are longer than 100 columns (tables may be)"


def test_wrapping_keeps_words_and_structure() -> None:
    long = "word " * 30
    page = f"# {long}\n\n- {long}\n- short\n\n    code {long}\n\n1. {long}- {long}\n\n| {long} |\n"
    made = wrapped(page)
    assert made.split() == page.split()
    assert wrapped(made) == made
    begins = [line[:2] for line in made.split("\n") if line.startswith(("-", "1", "#", "|"))]
    assert begins == ["# ", "- ", "- ", "1.", "| "]


def test_readme_names_every_page() -> None:
    found = linked(ROOT / "README.md")
    missing = [path.name for path in DOCS.glob("*.md") if path not in found]
    assert not missing, f"README, section Read on, does not name {missing}"
    assert DOCS / "decisions" in found


# Architecture, code map ---------------------------------------------------------------------------


def test_every_file_of_the_device_and_its_model_is_reachable() -> None:
    """From the architecture page itself, or from a page that it links; every folder has its place in it."""
    start = DOCS / "architecture.md"
    direct = linked(start)
    reachable = set(direct)
    for page in direct:
        if page.suffix == ".md" and page.is_file():
            reachable |= linked(page)
    for top in ("hw", "sim"):
        files = [*all_of(f"{top}/**/*.py"), *all_of(f"{top}/**/*.sv")]
        assert len(files) > 20
        missing = [str(path.relative_to(ROOT)) for path in files
                   if path not in reachable and path.name != "__init__.py"]
        assert not missing, f"architecture.md reaches no {missing}"
        folders = {path.parent for path in files}
        far = [folder for folder in folders if not any(page == folder or folder in page.parents for page in direct)]
        assert not far, f"architecture.md itself names nothing of {far}"


def test_units_and_memories_are_sections_in_dataflow_order() -> None:
    heads = re.findall(r"^#+ (.*)$", (DOCS / "architecture.md").read_text(), re.M)
    order = ["Host and registers", "Fetch", "Resolve", "Dispatch", "Issue and claims", "Units",
             "Load and store", "Matrix", "Vector", "Select", "Memories", "DRAM", "Interrupt, counters, watchdog"]
    assert [head for head in heads if head in order] == order
    for unit in Unit:
        assert any(unit.label in head.lower() for head in heads), unit


def test_code_map_has_every_folder_and_file() -> None:
    folders = {folder.path: folder for part in FOLDERS.values() for folder in part}
    tops = ("gemmule", "hw", "sim", "compiler", "sw", "benchmarks", "examples")
    real = {str(path.parent.relative_to(ROOT)) for top in tops for path in (ROOT / top).rglob("*") if path.is_file()
            and path.suffix in SUFFIXES and "__pycache__" not in path.parts
            and not any(parent.is_symlink() for parent in path.parents)}
    assert real == set(folders) - {"tests"}, "sw/pages/code_map.py: FOLDERS"
    reached = linked(DOCS / "code-map.md")
    for folder in folders.values():
        files = files_of(folder)
        names = {path.stem for path in files} | {"operands"}  # the table of operands
        assert set(folder.order) <= names, f"sw/pages/code_map.py: {folder.path} has no {set(folder.order) - names}"
        if folder.path != "tests":
            assert set(files) <= reached
            for path in files:
                assert first_line(path) or path.suffix in (".json", ".safetensors", ".vlt"), f"{path} says nothing"


def test_code_map_leaves_out_what_commands_make(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.fst\nroom/made.safetensors\n")
    (tmp_path / "room").mkdir()
    for name in ("kept.safetensors", "made.safetensors"):
        (tmp_path / "room" / name).touch()
    assert files_of(Folder("room"), tmp_path) == [tmp_path / "room" / "kept.safetensors"]


# Figures ------------------------------------------------------------------------------------------


def test_diagram_shows_every_unit_stream_and_port() -> None:
    svg = (DOCS / "img" / "system.svg").read_text()
    ids = set(re.findall(r'id="([^"]+)"', svg))
    blocks = {"host", "csr", "fetch", "resolve", "dispatch", "issue", "read_arbiter", "dram", "scratchpad",
              "accumulator"}
    assert blocks | {unit.label for unit in Unit} <= ids
    texts = set(re.findall(r"<text[^>]*>([^<]+)</text>", svg))
    assert set(STREAMS) <= texts
    paths = memory_paths()
    assert {path.name for path in paths} | {"list.load", "list.store", "unit-control", "axi-lite", "irq"} <= ids
    # What is drawn is what claims can hold: for each stream the kinds of ports of its paths.
    kinds = {(path.stream, f"{'spm' if path.memory == 'scratchpad' else 'acc'}_{'read' if path.reads else 'write'}")
             for path in paths}
    assert kinds == {(stream, kind) for stream, parts in _STREAM_PARTS.items() for part in parts for kind in part}
    assert {path.stream: path.unit for path in paths} == dict(zip(STREAMS, map(Unit, STREAM_UNIT), strict=True))


def test_mesh_figure_is_what_the_mesh_does() -> None:
    """One weight-stationary tile through the RTL: in and out in the cycles that the figure states."""
    dim, rows = mesh_figure.DIM, mesh_figure.ROWS
    config = load_config({"dim": dim, "bus_bytes": 2, "spm_kib": 1, "acc_kib": 1, "spm_banks": 2, "acc_banks": 1,
                          "preload": 1, "burst_bytes": 32})
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 256, (rows, dim)), rng.integers(-128, 128, (dim, dim))
    first, edge, expected = dim, {}, {}
    for lane in range(dim):
        for item in range(dim):
            edge["weights", lane, item + lane] = int(b[item, lane]) & 255
        edge["capture_row", lane, 2 * lane] = edge["swap", lane, first + lane - 1] = 1
        for m in range(rows):
            edge["a", lane, first + mesh_figure.enters(m, lane)] = int(a[m, lane])
    for m in range(rows):
        for c in range(dim):
            expected[first + mesh_figure.leaves(m, c), c] = int((a @ b)[m, c])
    mesh = Mesh(config=config)

    async def bench(ctx):
        for t in range(first + rows + 2 * dim):
            for port in ("swap", "capture_row"):
                ctx.set(getattr(mesh, port), sum(edge.get((port, i, t), 0) << i for i in range(dim)))
            for port in ("a", "weights"):
                for i in range(dim):
                    ctx.set(getattr(mesh, port)[i], edge.get((port, i, t), 77))
            for c in range(dim):
                if (t, c) in expected:
                    assert ctx.get(mesh.sums[c]) == expected.pop((t, c)), (t, c)
            await ctx.tick()

    run_bench(mesh, bench)
    assert not expected
    assert mesh_figure.sees(2, 1, 3) == 6


# Configuration, registers -------------------------------------------------------------------------


def test_configuration_page_has_every_field_with_its_default() -> None:
    known = {name: field for name, field in Config.model_fields.items() if name not in ("dram", "host")}
    known |= {f"dram.{name}": field for name, field in Dram.model_fields.items()}
    known |= {f"host.{name}": field for name, field in Host.model_fields.items()}
    listed = [field.name for part in FIELDS.values() for field in part]
    assert sorted(listed) == sorted(known)
    for name, field in known.items():
        assert value_of(Config(), name) == field.default
    for field in (field for part in FIELDS.values() for field in part):
        assert all((field.meaning, field.effect, field.range)), field.name


ROOMY = {
    "dim": 64, "bus_bytes": 2, "spm_kib": 1024, "acc_kib": 1024, "spm_banks": 1, "acc_banks": 1, "preload": 1,
    "burst_bytes": 32, "fetch_queue": 128, "dram.row_bytes": 8192, "dram.refresh_cycles": 0, "dram.refresh_period": 0,
}
"""A device in which a field can take its whole range; a field that needs another one has it below."""
BESIDE = {
    ("dim", 2): {"spm_kib": 64, "acc_kib": 64}, ("bus_bytes", 64): {"burst_bytes": 64},
    ("spm_kib", 1): {"dim": 16}, ("acc_kib", 1): {"dim": 8, "spm_kib": 64},
    ("burst_bytes", 1024): {"bus_bytes": 4},
    ("dram.refresh_cycles", 65535): {"dram.refresh_period": 0},
}


def nested(values: dict[str, object]) -> dict[str, object]:
    out: dict[str, dict[str, object] | object] = {}
    for name, value in values.items():
        part, _, rest = name.partition(".")
        if rest:
            out.setdefault(part, {})[rest] = value  # type: ignore[union-attr, index]
        else:
            out[name] = value
    return out  # type: ignore[return-value]


def accepts(name: str, value: int) -> bool:
    try:
        load_config(nested(ROOMY | BESIDE.get((name, value), {}) | {name: value}))
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("field", [f for part in FIELDS.values() for f in part if f.unit], ids=lambda f: f.name)
def test_stated_range_is_the_real_one(field: Field) -> None:
    for value in (field.low, field.high):
        assert accepts(field.name, value), value
    for value in (field.low // 2, field.high * 2) if field.power else (field.low - 1, field.high + 1):
        assert value == 0 and field.zero or not accepts(field.name, value), value
    if field.power and field.high > 2:
        assert not accepts(field.name, field.high - 1), "only powers of two"
    assert accepts(field.name, 0) == (field.zero or field.low == 0)


def test_registers_page_has_every_register_and_fault() -> None:
    assert set(REGISTERS) == set(Csr)
    assert set(FAULT_MEANING) == set(FAULTS)
    page = (DOCS / "registers.md").read_text()
    for register in Csr:
        assert f"| 0x{register.value:03x} | `{register.name}` |" in page
    members = ports_of_block("csr", "base")
    assert f"| `PROGRAM_COMMANDS` | {Shape.cast(members['commands'].shape).width} |" in page
    assert f"| `WATCHDOG` | {Shape.cast(members['watchdog'].shape).width} |" in page


# Limits, how to add an operation, glossary, decisions ---------------------------------------------


def messages() -> set[str]:
    """Every string of the software, with ``{}`` where a value stands; neighbours are joined as Python joins them."""
    found = set()
    for top in ("gemmule", "compiler", "sim", "sw"):
        for path in all_of(f"{top}/**/*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
                elif isinstance(node, ast.JoinedStr):
                    found.add("".join(str(part.value) if isinstance(part, ast.Constant) else "{}"
                                      for part in node.values))
    return found


def quoted_messages() -> list[str]:
    """Messages of limits.md: code in the last column of its tables that reads like a sentence."""
    cells = re.findall(r"^\|.*\| ([^|]*) \|$", (DOCS / "limits.md").read_text(), re.M)
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell) if code.count(" ") >= 2]


def test_limits_quote_real_messages() -> None:
    known, quoted = messages(), quoted_messages()

    def real(text: str) -> bool:
        pattern = re.compile(r".{1,120}?".join(map(re.escape, text.split(".."))), re.S)
        return any(pattern.search(one) for one in known)

    assert len(quoted) > 40
    for text in quoted:
        assert real(text), f"limits.md quotes a message that is not there: {text}"
    assert not real("K must stay below 131073 so that")


def test_limits_state_real_numbers() -> None:
    from gemmule.isa import MAX_WAIT, NUM_BASES, NUM_LENGTHS, NUM_PREDICATES

    text = (DOCS / "limits.md").read_text()
    assert f"| wait distance | {MAX_WAIT} |" in text
    assert f"| {NUM_LENGTHS} (number 0 reads 65,535), {NUM_BASES} |" in text
    assert f"| predicates | {NUM_PREDICATES - 1}, and number 0" in text
    assert 131072 * 128 * 128 == 1 << 31
    assert 65535 * 255 * 128 < 1 << 31


def test_how_to_add_an_operation_names_the_places() -> None:
    """Every source file that knows ABSMAX is on the page, and the example is on the accumulator."""
    found = linked(DOCS / "how-to-add-an-operation.md")
    for top in ("gemmule", "hw", "sim", "compiler"):
        for path in all_of(f"{top}/**/*.py"):
            knows = re.search(r"\bVOp\.ABSMAX\b|^ +ABSMAX = |\b_ABSMAX\b", path.read_text(), re.M)
            assert not knows or path in found, f"{path.relative_to(ROOT)} knows ABSMAX, the page does not name it"


def test_glossary_is_in_order() -> None:
    """By letters alone, upper and lower case alike."""
    for table in (DOCS / "glossary.md").read_text().split("\n\n"):
        words = re.findall(r"^\| (?!word|-)([^|]+) \|", table, re.M)
        assert words == sorted(words, key=lambda word: re.sub(r"\(.*\)|[^a-z]", "", word.lower())), words


FORBIDDEN = ("softmax weight", "attention weight", "scratch pad", "activation memory")
"""What the glossary has another word for."""


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda p: p.stem)
def test_words_are_those_of_the_glossary(page: Path) -> None:
    text = " ".join(page.read_text().split()).lower()
    found = [word for word in FORBIDDEN if word in text]
    assert not found or page.stem == "code-map", f"{page.name} says {found}, see glossary.md"


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=lambda p: p.stem)
def test_decision_has_its_parts(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {int(page.name[:4])}. ")
    parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.M)
    assert parts == ["Context", "Decision", "Drawbacks", "Alternatives", "Measurement"]


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(page.name[:4]) for page in sorted((DOCS / "decisions").glob("*.md"))] == list(
        range(1, len(list((DOCS / "decisions").glob("*.md"))) + 1))


def test_presets_are_columns() -> None:
    assert f"| {' | '.join(PRESETS)} | effect |" in (DOCS / "configuration.md").read_text()


# Pages that were there before ---------------------------------------------------------------------


def test_timing_page_names_every_constant() -> None:
    from gemmule.timing import Timing

    text = (ROOT / "docs" / "timing.md").read_text()
    for field in fields(Timing):
        unit = field.name.removesuffix("_zero")
        assert field.name in text or (field.name.endswith("_zero") and unit in text), field.name
    for stream in STREAMS:
        assert stream in text, stream


def test_pages_show_real_output() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))
    for name, parts in made["PARTS"].items():
        text = (ROOT / name).read_text()
        for marker, content in parts.items():
            assert made["fill"](text, marker, content()) == text, f"{name}, {marker}: run python -m benchmarks.readme"


def test_program_with_bodies_runs_as_the_page_says() -> None:
    """Three sequences in blocks of 64 rows: the loads of the page's program, with their rows."""
    block = re.search(r"\n\n((?:    .*\n|\n)+)", (DOCS / "bodies.md").read_text())
    assert block is not None
    load = Command.make(Unit.LOAD, base=3, bytes=16, stride=16, row_stride=1, block_stride=1, rows=Length(64, 2))
    made: dict[str, Any] = {"load": load}
    exec(textwrap.dedent(block[1]), made)
    nothing = np.zeros(NUM_BASES, dtype=np.int64), np.full(NUM_BASES, 1 << 20), np.zeros(NUM_LENGTHS, dtype=np.int64)
    stream = stream_of(encode_program(made["program"]), load_config("base"), *nothing)
    loads = stream.resolved[stream.units == Unit.LOAD]
    assert loads[:, OUT["m"]].tolist() == [64, 64, 64, 64, 44, 20, 7]
    assert loads[:, OUT["address"]].tolist() == [1024 * i for i in range(7)]


def test_gemmini_page_names_real_tests() -> None:
    rows = re.findall(r"^\| (\d+) \|.*?\| (yes|part|no) \|(.*)\|$", (ROOT / "docs" / "gemmini.md").read_text(), re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, 51))
    named = [re.search(r"`(tests/[\w/]+\.py)::(\w+)`", rest) for _, has, rest in rows if has == "yes"]
    assert len(named) >= 34
    for found in named:
        assert found is not None
        assert re.search(rf"^ *(async )?def {found[2]}\b", (ROOT / found[1]).read_text(), re.M), found[0]
