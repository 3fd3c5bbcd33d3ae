"""The generated Verilog under Icarus Verilog: outputs are known from reset on, and DRAM ends as the model's.

Not part of the suite's default run: `make fourstate` runs it, because Icarus is a system package.
"""

from pathlib import Path

import pytest

from gemmule.config import load_config

pytestmark = pytest.mark.rtl
CONFIG = load_config("tiny")
BENCH = Path(__file__).with_name("fourstate.sv")
