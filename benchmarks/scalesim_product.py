"""The same product on SCALE-Sim 3 (a systolic-array simulator without memory values), for comparison.

    make perf-scalesim

Runs in an environment of its own (SCALE-Sim 3.0.0 fails with numpy 2.3 and later). Infinite bandwidth
("CALC"), weight-stationary, traces off. 512x768x3072 on a 16 x 16 array takes up to half an hour and 11 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

CONFIG = """[general]
run_name = product
[architecture_presets]
ArrayHeight: {dim}
ArrayWidth: {dim}
IfmapSramSzkB: 128
FilterSramSzkB: 128
OfmapSramSzkB: 64
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: ws
Bandwidth: 16
ReadRequestBuffer: 32
WriteRequestBuffer: 32
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 16
IfmapSRAMBankNum: 16
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 16
FilterSRAMBankNum: 16
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="512x768x3072", help="MxKxN")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("build/scalesim.json"))
    args = parser.parse_args()
    from scalesim.scale_sim import scalesim

    m, k, n = map(int, args.shape.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "device.cfg").write_text(CONFIG.format(dim=args.dim))
        (root / "product.csv").write_text(f"Layer, M, N, K,\nproduct, {m}, {n}, {k},\n")
        (root / "layout.csv").write_text(
            "Layer,IFMAP Height Intraline Factor,IFMAP Width Intraline Factor,Filter Height Intraline Factor,"
            "Filter Width Intraline Factor,Channel Intraline Factor,Num Filter Intraline Factor,"
            "IFMAP Height Intraline Order,IFMAP Width Intraline Order,Channel Intraline Order,"
            "IFMAP Height Interline Order,IFMAP Width Interline Order,Channel Interline Order,"
            "Num Filter Intraline Order,Channel Intraline Order,Filter Height Intraline Order,"
            "Filter Width Intraline Order,Num Filter Interline Order,Channel Interline Order,"
            "Filter Height Interline Order,Filter Width Interline Order,\n"
            "product,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,\n")
        begin = time.process_time()
        simulator = scalesim(
            save_disk_space=True, verbose=False, config=str(root / "device.cfg"),
            topology=str(root / "product.csv"), layout=str(root / "layout.csv"), input_type_gemm=True)
        simulator.run_scale(top_path=str(root / "out"))
        seconds = time.process_time() - begin
        layer = simulator.runner.single_layer_sim_object_list[0]
        cycles = int(layer.get_compute_report_items()[1])
    record = {
        "command": f"make perf-scalesim SHAPE={args.shape}", "shape": args.shape, "cycles": cycles,
        "cpu_seconds": seconds, "cycles_per_second": cycles / seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    part = args.out.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, args.out)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
