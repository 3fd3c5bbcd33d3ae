"""What hatchling leaves out of a source archive: the symbolic links of the repository.

Hatchling follows links, which would put a second copy of ``hw`` and the others below ``gemmule``, and an edit of one
would not reach the other. ``pyproject.toml`` excludes what the links point to; this hook adds the links themselves.
"""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKS = ("configs", "gemmule/compiler", "gemmule/hw", "gemmule/sim", "gemmule/sw")


class LinksHook(BuildHookInterface):
    """Rewrites the finished archive with the links of `LINKS` in it."""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        archive, part = Path(artifact_path), Path(f"{artifact_path}.part")
        with (
            tarfile.open(archive) as old,
            part.open("wb") as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member in old.getmembers():
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
            top = old.getmembers()[0]
            for link in LINKS:
                member = tarfile.TarInfo(f"{top.name.split('/')[0]}/{link}")
                member.type, member.mtime = tarfile.SYMTYPE, top.mtime
                member.linkname = os.readlink(Path(self.root, link))
                new.addfile(member)
        part.replace(archive)
