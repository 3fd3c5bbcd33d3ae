"""What is told of training: ``docs/results/training.json``, a part for each stage, with its lines of the log."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmule.sw.training.networks.export import write_json

__all__ = ["replace_stage", "stage_log"]


def stage_log(out: Path, name: str | None = None) -> list[dict[str, Any]]:
    """The lines of the log below ``out``, of one stage or of all."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if name in (None, line["stage"])]


def replace_stage(docs: Path, out: Path, name: str, plan: Any, record: dict[str, Any]) -> None:
    """Tell of one stage anew, with its recipe ``plan``; the others stay as they were."""
    path = docs / "results" / "training.json"
    done = json.loads(path.read_text(encoding="utf-8"))
    done["recipe"][name], done["stages"][name] = asdict(plan), record
    log = [line for line in done["log"] if line["stage"] != name]
    write_json(path, done | {"log": log + stage_log(out, name)})
