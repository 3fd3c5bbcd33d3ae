"""JSON Schemas of what ``--json`` writes, one a command."""

from __future__ import annotations

import json
from typing import Any

from gemmule.sw.records import RECORDS, VERSION

__all__ = ["schema", "schema_text"]


def schema(command: str) -> dict[str, Any]:
    """The schema of one command's output (draft 2020-12)."""
    made = RECORDS[command].model_json_schema(by_alias=True)
    made["properties"]["schema"]["const"] = f"gemmule/{command}/{VERSION}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"gemmule/{command}/{VERSION}", **made}


def schema_text(command: str) -> str:
    """The file."""
    return json.dumps(schema(command), indent=1) + "\n"
