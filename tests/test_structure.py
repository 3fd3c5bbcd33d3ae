"""The layering of the house, and the shape of its files."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = {"config", "csr", "isa", "numerics", "resolve", "timing"}
ALLOWED = {
    "gemmule": CONTRACTS,
    "hw": CONTRACTS | {"hw"},
    "sim": CONTRACTS | {"sim"},
    "compiler": CONTRACTS | {"compiler", "sim"},
    "sw": CONTRACTS | {"sw", "compiler", "sim", "hw"},
}
EXCEPTIONS = {("sim/cosim.py", "hw")}
"""The one named exception: co-simulation drives the generated Verilog."""


def sources() -> list[Path]:
    return sorted(
        path for top in ("gemmule", "hw", "sim", "compiler", "sw") for path in (ROOT / top).rglob("*.py")
        if not any(part.is_symlink() for part in path.parents)
    )


def imports(path: Path) -> set[str]:
    """First component below ``gemmule`` of every project import in a file."""
    found = set()
    relative = path.relative_to(ROOT)
    package = list(relative.parts[:-1])
    if package[0] != "gemmule":
        package.insert(0, "gemmule")
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*prefix, *([node.module] if node.module else [])])
            names = [module] + [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "gemmule" and len(parts) > 1 and parts[1] in set().union(*ALLOWED.values()):
                found.add(parts[1])
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_layering(path: Path) -> None:
    relative = str(path.relative_to(ROOT))
    allowed = ALLOWED[path.relative_to(ROOT).parts[0]]
    extra = {name for name in imports(path) - allowed if (relative, name) not in EXCEPTIONS}
    assert not extra, f"{relative} must not import {sorted(extra)}"


def test_layering_check_sees_the_named_exception() -> None:
    assert "hw" in imports(ROOT / "sim" / "cosim.py")


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_links() -> None:
    for name in ("hw", "sim", "compiler", "sw"):
        assert (ROOT / "gemmule" / name).resolve() == ROOT / name
