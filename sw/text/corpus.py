"""The training text: the Python files of the running interpreter's standard library.

Nothing is downloaded.  The text differs between Python versions, so each split carries a
sha256 digest; a metrics file names the digests it was measured on.
"""

import hashlib
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Folders that are third party, build products, tests, or tables and generated text rather than code.
EXCLUDED_FOLDERS = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "turtledemo",
    }
)
# Written by the machine's own build or distribution: they would differ between equal Python versions.
EXCLUDED_STEMS = ("_sysconfigdata", "sitecustomize", "usercustomize")

CALIBRATION_PERCENT = 3
HELD_OUT_PERCENT = 5
SPLITS = ("train", "calibration", "held_out")

Document = tuple[str, str]
"""(path relative to the library root in posix form, text)."""


@dataclass(frozen=True)
class Corpus:
    """Three disjoint lists of documents, each in path order."""

    train: list[Document]
    calibration: list[Document]
    held_out: list[Document]

    def split(self, name: str) -> list[Document]:
        """The documents of one of `SPLITS`."""
        if name not in SPLITS:
            raise ValueError(f"a split is one of {', '.join(SPLITS)}, not {name!r}")
        documents: list[Document] = getattr(self, name)
        return documents

    def digests(self) -> dict[str, str]:
        """The sha256 of each split."""
        return {name: digest(self.split(name)) for name in SPLITS}

    def sizes(self) -> dict[str, int]:
        """The UTF-8 bytes of each split."""
        return {name: byte_count(self.split(name)) for name in SPLITS}


def is_included(relative: PurePosixPath) -> bool:
    """Whether a library file belongs to the corpus, judged by its path alone."""
    if relative.suffix != ".py" or relative.name.startswith(EXCLUDED_STEMS):
        return False
    return EXCLUDED_FOLDERS.isdisjoint(relative.parts[:-1])


def split_of(relative: str) -> str:
    """The split of a file: a function of its path only, so that an edit never moves a file."""
    bucket = int(hashlib.md5(relative.encode(), usedforsecurity=False).hexdigest(), 16) % 100
    if bucket < CALIBRATION_PERCENT:
        return "calibration"
    if bucket < CALIBRATION_PERCENT + HELD_OUT_PERCENT:
        return "held_out"
    return "train"


def read_documents(root: Path, included: Callable[[PurePosixPath], bool] = is_included) -> list[Document]:
    """All included files below `root`, sorted by posix path.

    Empty files are left out, as are the few that are not UTF-8: a byte-level tokenizer could
    hold them, but the rest of the tool chain speaks `str`.
    """
    documents: list[Document] = []
    # Sorting the strings, not the Path objects, gives the same order on every platform.
    for relative in sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py")):
        if not included(PurePosixPath(relative)):
            continue
        try:
            # bytes.decode keeps \r\n as it is; read_text would fold it.
            text = (root / relative).read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        if text:
            documents.append((relative, text))
    return documents


def load_corpus(root: Path | None = None) -> Corpus:
    """Read and split the corpus; `root` defaults to the standard library of this interpreter."""
    folder = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    parts: dict[str, list[Document]] = {name: [] for name in SPLITS}
    for document in read_documents(folder):
        parts[split_of(document[0])].append(document)
    return Corpus(parts["train"], parts["calibration"], parts["held_out"])


def digest(documents: Iterable[Document]) -> str:
    """A sha256 over paths and texts; lengths are hashed too, so no two lists collide by joining."""
    state = hashlib.sha256()
    for relative, text in documents:
        for field in (relative.encode(), text.encode()):
            state.update(len(field).to_bytes(8, "little"))
            state.update(field)
    return state.hexdigest()


def byte_count(documents: Iterable[Document]) -> int:
    """The UTF-8 bytes of the texts: the denominator of bits per byte."""
    return sum(len(text.encode()) for _, text in documents)


def main() -> None:
    """Print files, bytes and digest of each split."""
    corpus = load_corpus()
    for name in SPLITS:
        documents = corpus.split(name)
        print(f"{name:12} {len(documents):4} files {byte_count(documents):9} bytes  {digest(documents)}")


if __name__ == "__main__":
    main()
