"""A case of hostile input, and the process that runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "sw" / "models" / "small"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command that must be refused. Files are made in the working folder, damage in a copy of the models."""

    label: str
    arguments: tuple[str, ...]
    says: str
    """Part of the one line."""
    names: str = ""
    """The file at fault, as the line has it."""
    make: Callable[[Path], None] | None = None
    damage: Callable[[Path], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run left: ``left`` are the paths that it made or changed."""

    code: int
    out: str
    err: str
    seconds: float
    kib: int
    left: list[str] = field(default_factory=list)


def state(folder: Path) -> dict[str, object]:
    """Every path below a folder with its size and time."""
    return {str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns, path.lstat().st_mode)
            for path in sorted(folder.rglob("*"))}


class Runner:
    """Owns the server process and the folders below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0
        environment = os.environ | {
            "GEMMULE_CACHE": str(root / "cache"), "COLUMNS": "100",
            "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}  # a thread's stack would count as memory
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment)

    def run(self, case: Case, seconds: int = 10) -> Outcome:
        """Make the case's files, run its command for ``seconds`` of processor time, compare the folders."""
        self.count += 1
        base = self.root / str(self.count)
        folder, temporary, models = base / "work", base / "tmp", MODELS
        folder.mkdir(parents=True)
        temporary.mkdir()
        (self.root / "cache").mkdir(exist_ok=True)
        if case.make:
            case.make(folder)
        if case.damage:
            models = base / "models" / MODELS.name
            shutil.copytree(MODELS, models, ignore=shutil.ignore_patterns("__pycache__"))
            case.damage(models)
        watched = (folder, temporary, self.root / "cache" / "rtl", models)  # compiled code may come
        before = [state(one) for one in watched]
        request = {"arguments": list(case.arguments), "folder": str(folder), "temporary": str(temporary),
                   "models": str(models.parent), "out": str(base / "out"), "err": str(base / "err"),
                   "seconds": seconds}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        left = [path for old, one in zip(before, watched, strict=True)
                for path in sorted({name for name, _ in old.items() ^ state(one).items()})]
        read = {name: (base / name).read_bytes().decode(errors="backslashreplace") for name in ("out", "err")}
        shutil.rmtree(base)
        return Outcome(**answer, **read, left=left)

    def close(self) -> None:
        """End the server."""
        self.process.communicate()
