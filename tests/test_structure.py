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
SIM = {f"sim.{name}" for name in ("simulator", "launch", "result", "errors", "roofline", "compiled", "stream")}
COMPILER = {"compiler"} | {f"compiler.{path.stem}" for path in (ROOT / "compiler").glob("[!_]*")}
ALLOWED = {
    "gemmule": CONTRACTS | IO,
    "gemmule.__main__": {"sw"},
    "hw": CONTRACTS,
    **{unit: CONTRACTS | SHARED | {unit} for unit in UNITS},
    "hw.device": CONTRACTS | SHARED | UNITS | {"hw.device"},
    "hw.flow": CONTRACTS | IO | SHARED | UNITS | {"hw.device", "hw.flow", "hw.tb"},
    "hw.tb": CONTRACTS,
    "sim": CONTRACTS | IO | SIM | {"sim.timing", "sim.functional"},
    "sim.timing": CONTRACTS | IO | {"sim.timing", "sim.compiled"},
    "sim.functional": CONTRACTS | {"sim.functional", "sim.compiled"},
    "sim.verify": CONTRACTS | IO | {"sim.verify", "sim.compiled", "sim.errors", "sim.stream"},
    "sim.rtl": CONTRACTS | IO | SIM | {"sim.rtl", "sim.verify", "hw.flow", "hw.tb"},
    "sim.fuzz": CONTRACTS | IO | SIM | {"sim.fuzz", "sim.rtl", "sim.verify"},
    "sim.mutants": CONTRACTS | IO | SIM | {"sim.mutants", "sim.fuzz", "sim.rtl", "hw.tb"},
    "compiler": CONTRACTS | IO | SIM | COMPILER | {"sim.verify"},
    "compiler.ir": CONTRACTS | IO | {"compiler.ir", "compiler.errors", "sim.compiled"},
    "compiler.importers": CONTRACTS | IO | {"compiler.importers", "compiler.ir", "compiler.errors",
                                            "compiler.layout", "compiler.tensors"},
    "compiler.kernels": CONTRACTS | {"compiler.ir", "compiler.kernels", "compiler.errors", "compiler.layout",
                                     "compiler.place"},
    "compiler.mapping": CONTRACTS | IO | SIM | COMPILER,
    "compiler.passes": CONTRACTS | SIM | COMPILER,
    "compiler.quantize": CONTRACTS | IO | COMPILER,
    "sw": CONTRACTS | IO | SIM | COMPILER | {"sw", "sim.rtl", "sim.fuzz", "sim.mutants", "sim.verify", "hw.flow"},
}
"""By folder what its files may import: contracts by name, files and folders of ``hw`` and ``sim`` by path.

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
    return ".".join(parts[:2]) if parts[0] in ("hw", "sim", "compiler") else parts[0]


def folder_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts[:-1]
    if path.name == "__main__.py" and parts == ("gemmule",):
        return "gemmule.__main__"  # python -m gemmule: the command line
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
        if names and path.parent.name != "kernels":
            found.add(path.stem)
    assert not found
