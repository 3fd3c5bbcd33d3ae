"""The layering of the house: who may import whom, folder by folder."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("gemmule", "hw", "sim", "compiler", "sw")
CONTRACTS = {"clauses", "config", "control", "csr", "isa", "numerics", "operands", "operations", "resolve", "terms",
             "timing"}
IO = {"io"}
"""Files, cache folder, progress lines: what knows no device and is no contract."""
SHARED = {"hw.interfaces", "hw.queue"}
UNITS = {f"hw.{name}" for name in ("command", "move", "matrix", "vector", "select", "memory")}
SIM = {f"sim.{name}" for name in ("simulator", "launch", "result", "errors", "roofline", "compiled", "stream",
                                  "energy")}
COMPILER = ("errors", "layout", "place", "sources", "ir", "features", "files", "importers", "quantize", "ideal",
            "kernels", "program", "listing", "passes", "mapping", "programs", "compile", "search", "kept")
"""Rooms and files of ``compiler``, from the lowest on: one imports those before it, and itself."""
SW = ("errors", "limits", "text", "step", "kv", "device", "datastore", "models", "decoding", "prompts", "workloads",
      "records", "benches", "serving", "reports", "sweeps", "studies", "driver", "commands", "cli", "pages", "training")
"""The same of ``sw``."""
MOST_FILES = 18
"""Of a folder of ``compiler`` or ``sw``: more are a corridor."""
PLUGINS = {"sw/decoding/methods"}
"""Folders that are searched: a file there is a plug-in, and nothing else needs it."""
ORDERS = {"compiler": COMPILER, "sw": SW}
ALLOWED = {
    "gemmule": CONTRACTS | IO,
    "gemmule.__main__": {"sw.cli"},
    "hw": CONTRACTS,
    **{unit: CONTRACTS | SHARED | {unit} for unit in UNITS},
    "hw.device": CONTRACTS | SHARED | UNITS | {"hw.device"},
    "hw.flow": CONTRACTS | IO | SHARED | UNITS | {"hw.device", "hw.flow", "hw.tb"},
    "hw.formal": CONTRACTS | SHARED | UNITS | {"hw.device", "hw.flow", "hw.formal"},
    "hw.tb": CONTRACTS,
    "sim": CONTRACTS | IO | SIM | {"sim.timing", "sim.functional"},
    "sim.timing": CONTRACTS | IO | {"sim.timing", "sim.compiled"},
    "sim.functional": CONTRACTS | {"sim.functional", "sim.compiled"},
    "sim.energy": CONTRACTS | IO | {"sim.energy", "sim.compiled"},
    "sim.verify": CONTRACTS | IO | {"sim.verify", "sim.compiled", "sim.errors", "sim.stream"},
    "sim.rtl": CONTRACTS | IO | SIM | {"sim.rtl", "sim.verify", "hw.flow", "hw.tb"},
    "sim.fuzz": CONTRACTS | IO | SIM | {"sim.fuzz", "sim.rtl", "sim.verify"},
    "sim.mutants": CONTRACTS | IO | SIM | {"sim.mutants", "sim.fuzz", "sim.rtl", "hw.tb"},
    **{room: CONTRACTS | IO | SIM | {"sim.verify"}
       for room in ("compiler", *(f"compiler.{name}" for name in COMPILER))},
    "compiler.ir": CONTRACTS | IO | {"sim.compiled"},
    "compiler.importers": CONTRACTS | IO,
    "compiler.kernels": CONTRACTS,
    "compiler.quantize": CONTRACTS | IO,
    **{room: CONTRACTS | IO | SIM | {"sim.rtl", "sim.fuzz", "sim.mutants", "sim.verify", "hw.flow", "hw.formal"}
       for room in ("sw", *(f"sw.{name}" for name in SW))},
}
for _top, _order in ORDERS.items():
    for _place, _name in enumerate(_order):
        below = {f"{_top}.{room}" for room in _order[:_place + 1]}
        ALLOWED[f"{_top}.{_name}"] = ALLOWED[f"{_top}.{_name}"] | below
for _name in SW:
    ALLOWED[f"sw.{_name}"] = ALLOWED[f"sw.{_name}"] | {"compiler"} | {f"compiler.{room}" for room in COMPILER}
ALLOWED["compiler"] = ALLOWED["compiler.listing"]  # what the package itself names
"""By folder what its files may import: contracts by name, files and folders below the others by path.

``sim.rtl``, which builds and drives the generated Verilog, is the one room of ``sim`` that sees ``hw``; nothing of
``hw`` sees ``sim``.
"""


def sources() -> list[Path]:
    return sorted(
        path for top in TOPS for path in (ROOT / top).rglob("*.py")
        if not any(part.is_symlink() for part in path.parents)
    )


def room(parts: tuple[str, ...]) -> str:
    """The rule that holds for something below ``gemmule``: ``hw.queue``, ``config``, ``compiler.ir``."""
    return ".".join(parts[:2]) if parts[0] in ("hw", "sim", "compiler", "sw") else parts[0]


def folder_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts[:-1]
    if path.name == "__main__.py" and parts == ("gemmule",):
        return "gemmule.__main__"  # python -m gemmule: the command line
    if parts in (("compiler",), ("sw",)) and path.name != "__init__.py":
        parts = (*parts, path.stem)  # a file at the top is a room of its own
    return room(parts) if parts[0] != "gemmule" else "gemmule"


def imports(path: Path) -> set[str]:
    """Rooms of every project import in a file, also of those inside functions."""
    found = set()
    package = list(path.relative_to(ROOT).parts[:-1])
    if package[0] != "gemmule":
        package.insert(0, "gemmule")
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*prefix, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = tuple(name.split("."))
            if parts[0] == "gemmule" and len(parts) > 1 and (ROOT / "gemmule" / parts[1]).exists() | (
                    ROOT / "gemmule" / f"{parts[1]}.py").exists():
                found.add(room(parts[1:]))
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_layering(path: Path) -> None:
    extra = imports(path) - ALLOWED[folder_of(path)]
    assert not extra, f"{path.relative_to(ROOT)} must not import {sorted(extra)}"


@pytest.mark.parametrize("top", ORDERS)
def test_no_folder_is_a_corridor(top: str) -> None:
    folders = {path.parent for path in (ROOT / top).rglob("*.py")}
    counts = {str(folder.relative_to(ROOT)): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
              for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES and folder not in PLUGINS} == {}


def test_every_room_has_a_place() -> None:
    """No file stands beside the rooms without one."""
    for top, order in ORDERS.items():
        found = {path.stem for path in (ROOT / top).iterdir()
                 if path.suffix == ".py" or (path / "__init__.py").exists()}
        assert found - {"__init__"} == set(order)


def test_the_check_sees_upward_and_hidden_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that looks at a report: while types are checked, and when it runs."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    wrong = tmp_path / "sw" / "device" / "ledger.py"
    wrong.parent.mkdir(parents=True)
    (tmp_path / "gemmule" / "sw").mkdir(parents=True)
    for text in ("if TYPE_CHECKING:\n    from gemmule.sw.reports.trace import slices\n",
                 "def f():\n    from gemmule.sw.reports import trace\n    return trace\n",
                 "def f():\n    import gemmule.sw.reports.trace\n"):
        wrong.write_text(text)
        assert imports(wrong) - ALLOWED[folder_of(wrong)] == {"sw.reports"}


def test_every_contract_is_known() -> None:
    files = {path.stem for path in (ROOT / "gemmule").glob("*.py")} - {"__init__", "__main__"}
    folders = {path.parent.name for path in (ROOT / "gemmule").glob("*/__init__.py") if not path.parent.is_symlink()}
    assert files | folders == CONTRACTS | IO


def test_every_folder_has_a_rule_and_names_itself() -> None:
    folders = {folder_of(path) for path in sources()}
    assert folders == set(ALLOWED)
    for path in sources():
        if path.name == "__init__.py" and path.parent != ROOT / "gemmule":
            assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_check_sees_imports_inside_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the layering must refuse: a unit that looks at another one, hidden in a function."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    wrong = tmp_path / "hw" / "vector" / "lane.py"
    wrong.parent.mkdir(parents=True)
    (tmp_path / "gemmule" / "hw").mkdir(parents=True)
    wrong.write_text("def f():\n    from gemmule.hw.matrix.pe import PE\n    return PE\n")
    assert imports(wrong) - ALLOWED["hw.vector"] == {"hw.matrix"}


def test_tests_mirror_the_source() -> None:
    """Every folder of tests below hw and sim stands for one of theirs."""
    for top in ("hw", "sim"):
        for path in (ROOT / "tests" / top).iterdir():
            if path.is_dir() and path.name != "__pycache__":
                assert (ROOT / top / path.name).is_dir(), path


def test_links() -> None:
    for name in ("hw", "sim", "compiler", "sw"):
        assert (ROOT / "gemmule" / name).resolve() == ROOT / name


def test_only_kernels_choose_device_operations() -> None:
    """Matrix, vector and select commands are written in ``compiler/kernels`` alone."""
    found = set()
    for path in (ROOT / "compiler").rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
                 and isinstance(node.value, ast.Name) and node.value.id in ("VOp", "SOp", "MatrixFlag")}
        if names and (ROOT / "compiler" / "kernels") not in path.parents:
            found.add(path.stem)
    assert not found


def test_no_two_classes_of_the_compiler_have_one_name() -> None:
    found: dict[str, list[str]] = {}
    for path in (ROOT / "compiler").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def modules_named(path: Path) -> set[str]:
    """Modules of ``compiler`` that a file names anywhere: in functions and while types are checked too."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {name for node in nodes if node.module
             for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names))}
    return {name.removeprefix("gemmule.") for name in names if name.startswith("gemmule.compiler.")}


def circles(named: dict[str, set[str]]) -> set[str]:
    """Modules that name themselves over others."""
    left = dict(named)
    while done := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in done}
    return left.keys() - {name for name in left if not any(name in others for others in left.values())}


def test_the_compiler_has_no_circle_of_imports() -> None:
    """Also none that an import inside a function hides."""
    named = {}
    for path in (ROOT / "compiler").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts).removesuffix(".__init__")] = modules_named(path)
    assert circles(named) == set()
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"b", "c"}
