"""The testbench's check of claims finds the blocks that it looks at. That it is loud for a hull that is too small:
``tests/equivalence/test_planted.py``.
"""

import re
from pathlib import Path

from gemmule.config import load_config
from gemmule.sim.rtl.testbench import block_paths
from gemmule.sim.rtl.verilog import verilog_path

TINY = load_config("tiny")
STUB = Path(__file__).with_name("stub.sv")


def test_the_blocks_are_found():
    """Without them the check would be left out."""
    text = verilog_path(TINY).read_text(encoding="utf-8")
    paths = block_paths(text)
    assert paths.keys() == {"CLAIMS", "SCRATCHPAD", "ACCUMULATOR"}
    for path in paths.values():
        for block in path.split(".")[2:]:
            assert re.search(rf"^  gemmule_\w+ {block} \($", text, re.MULTILINE), block
    assert block_paths(STUB.read_text(encoding="utf-8")) == {}
