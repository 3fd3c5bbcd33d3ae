"""The house in numbers, before and after a change: rooms, arrows between them, functions, places to touch.

    python -m benchmarks.house --before 55f352e --out docs/results/house.json

Everything is counted in the sources of a revision (``git archive``), tests and docs left out. Places to touch are files
that name an example of the thing: prompt lookup for a decoding method, paged caches for a KV policy, online attention
for an attention kind, GPT-NeoX for a model family, the norm of heads for a network operation.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import show, write

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("gemmule", "hw", "sim", "compiler", "sw")
EXAMPLES = {
    "decoding method (pld)": r"\bpld\b|PromptLookup", "KV policy (paged)": r"\bPagedKV\b|PagePool",
    "attention kind (online)": r"online_attention|OnlineAttention|attention\.online",
    "model family (GPT-NeoX)": r"gpt_neox|GptNeox|GPTNeoX", "network operation (norm of heads)": r"HeadNorm|head_norm"}


def sources(root: Path) -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for top in TOPS:
        for path in sorted((root / top).rglob("*.py")):
            inside = path.relative_to(root)
            if not any(part.is_symlink() for part in path.parents):
                name = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
                found[name if top == "gemmule" else f"gemmule.{name}"] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Modules that one imports, also inside functions and while types are checked."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in known else node.module
                      for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module in known and module != name}


def circles(graph: dict[str, set[str]]) -> int:
    """Groups of modules that import each other, directly or through others (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    count = 0

    def visit(node: str) -> None:
        nonlocal count
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            count += len(group) > 1

    for node in graph:
        if node not in index:
            visit(node)
    return count


def functions(paths: Iterator[Path] | list[Path]) -> Iterator[tuple[int, int, int, str]]:
    """(lines, arguments, nested blocks, name) of every function."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
                yield (node.end_lineno or 0) - node.lineno + 1, arguments, _depth(node), f"{path.stem}.{node.name}"


def _depth(node: ast.AST) -> int:
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
    return max((isinstance(child, blocks) + _depth(child) for child in ast.iter_child_nodes(node)), default=0)


def measured(root: Path) -> dict[str, Any]:
    known = sources(root)
    graph = {name: imports(name, path, known) for name, path in known.items()}
    mine = {top: {name: path for name, path in known.items() if name.startswith(f"gemmule.{top}.")}
            for top in ("sw", "compiler")}
    found: dict[str, Any] = {}
    for top, modules in mine.items():
        counts = {str(folder.relative_to(root)): sum(path.parent == folder for path in modules.values())
                  for folder in {path.parent for path in modules.values()}}
        found[f"most files of a folder, {top}"] = max(counts.values())
    found["circles of imports"] = circles(graph)
    every = sorted(functions(list(known.values())))
    found |= {"longest function, lines": every[-1][0], "functions over 100 lines": sum(one[0] > 100 for one in every),
              "deepest function, blocks": max(one[2] for one in every)}
    for what, pattern in EXAMPLES.items():
        found[f"files: {what}"] = sum(bool(re.search(pattern, path.read_text())) for path in known.values())
    return found


def of_revision(revision: str) -> dict[str, Any]:
    archive = subprocess.run(["git", "archive", revision, *TOPS], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            opened.extractall(folder, filter="data")
        return measured(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="55f352e", help="a revision")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    before, now = of_revision(args.before), measured(ROOT)
    rows = [{"what": what, "before": before[what], "now": value} for what, value in now.items()]
    show(f"the house, {args.before} and now", rows)
    if args.out:
        write(args.out, {"command": f"python -m benchmarks.house --before {args.before}", "rows": rows})


if __name__ == "__main__":
    main()
