"""Control: one start for a request, the first fault kept, an end only when all has finished."""

from __future__ import annotations

from amaranth.hdl import Signal

from gemmule.config import Config
from gemmule.hw.device.control import Control
from gemmule.hw.device.watchdog import Watchdog
from gemmule.hw.formal.bench import Bench
from gemmule.resolve import FAULTS
from gemmule.timing import Timing

__all__ = ["control", "watchdog"]

SILENT_BITS = 32
HUNG = FAULTS.index("watchdog")


def control(bench: Bench, config: Config) -> None:
    """Dispatch, issue and the bus are free, but that what has been started or dispatched is not taken back."""
    m, dut = bench.m, bench.dut(Control(config=config))
    done = Timing.of(config).done
    equal = dut.dispatched.as_value() == dut.finished.as_value()
    bench.assume("faults", "a command's fault is not the watchdog's", dut.fault != HUNG)
    accepted = bench.wire(dut.request & ~dut.busy & (dut.code != HUNG), "accepted")
    pending, cycles = bench.register("pending"), Signal.like(dut.cycles, name="cycles_counted")
    requested = Signal()
    with m.If(accepted):
        m.d.sync += requested.eq(1)
    with m.If(dut.start | (dut.expired & dut.busy & ~dut.begin)):
        m.d.sync += requested.eq(0)
    with m.If(accepted):
        m.d.sync += cycles.eq(0)
    with m.If(dut.running):
        m.d.sync += cycles.eq(cycles + 1)
    with m.If(dut.start):
        m.d.sync += cycles.eq(1)

    def before(value: object, name: str) -> Signal:
        return bench.before(value, name)

    bench.lemma("faulted", "a register of its own tells that there is a code",
                bench.register("faulted") == (dut.code != 0))
    bench.lemma("pending", "a request waits for fetch, or the launch runs: not both", pending == requested,
                ~(pending & dut.running), ~pending | (dut.code == 0) | (dut.code == HUNG), ~dut.start | pending)
    bench.always("start", "each accepted request starts one launch, when fetch is idle, and none is lost; nothing else "
                          "starts one", ~dut.begin | requested & dut.fetch_idle & ~dut.running,
                 ~(requested & dut.fetch_idle) | dut.begin | dut.start, dut.start == before(dut.begin, "begun"),
                 ~before(dut.start, "started") | dut.running)
    bench.always("busy", "the device is busy from the request to the end, and done from there to the next request",
                 dut.busy == (requested | dut.running), ~(dut.busy & dut.done),
                 ~before(dut.done & ~accepted, "was_done") | dut.done)
    ends = before(dut.running, "ran") & ~dut.running
    history = [bench.wire(dut.running & equal & (dut.taken & dut.empty | dut.code.any()), "all_finished")]
    for i in range(done - 2):
        history.append(before(history[-1] & dut.running, f"finished_{i + 1}"))
        bench.lemma(f"delay {i + 1}", "the end is delayed by a fixed number of cycles",
                    bench.register(f"complete_{i + 1}") == history[-1])
    bench.always("end", f"a launch ends {done - 1} cycles after all that was dispatched had finished and nothing more "
                        "was to come, or by the watchdog",
                 ~ends | before(history[-1], "last") | before(dut.expired, "expired"),
                 ~before(history[-1] & dut.running, "must_end") | ~dut.running, ~ends | dut.irq & dut.done)
    bench.always("interrupt", "it stays until it is cleared or a launch is requested",
                 ~before(dut.irq & ~dut.irq_clear & ~accepted, "raised") | dut.irq,
                 ~(dut.irq & ~before(dut.irq, "irq")) | ends | before(dut.expired & dut.busy, "hung"))
    kept = before(dut.code, "code")
    bench.always("first fault", "the first fault stays until the next launch, or until the watchdog's",
                 before(accepted, "accepted") | (kept == 0) | (dut.code == kept) | (dut.code == HUNG),
                 (dut.code == kept) | before(dut.busy | accepted, "busy"))
    bench.always("stop", "nothing is pushed after a fault or outside a launch", dut.stop == ((dut.code != 0)
                 | ~dut.running))
    bench.always("hung", "after the watchdog's fault there is no further launch before a reset",
                 (dut.code != HUNG) | ~dut.busy, ~before(dut.code == HUNG, "is_hung") | (dut.code == HUNG))
    bench.always("cycles", "the cycles of a launch are counted from its start to its end", dut.cycles == cycles)
    bench.cover("fault ends", "a launch ends after a fault of the bus", ends & (dut.code == FAULTS.index("axi")))
    bench.cover("second launch", "a second launch ends without a fault", ends & (dut.code == 0)
                & (_count(bench, dut.start) == 2))


def _count(bench: Bench, event: Signal) -> Signal:
    count = Signal(3)
    bench.m.d.sync += count.eq(count + event)
    return count


def watchdog(bench: Bench, config: Config) -> None:
    """The bus is free, but that it answers only what was asked."""
    m, dut = bench.m, bench.dut(Watchdog(config=config))
    ar, r, aw, w, b = (getattr(dut, f"{name}_valid") & getattr(dut, f"{name}_ready") for name in ("ar", "r", "aw",
        "w", "b"))
    reads, writes = Signal(8, name="open_reads"), Signal(8, name="open_writes")
    m.d.sync += [reads.eq(reads + ar - (r & dut.r_last)), writes.eq(writes + aw - b)]
    bench.assume("answers", "the memory answers only what was asked", ~dut.r_valid | (reads != 0), ~dut.b_valid
                 | (writes != 0))
    bench.assume("limits", "no more is outstanding than may be (targets load-requests, store-sender)",
                 ~dut.ar_valid | (reads < config.read_bursts + config.fetch_queue),
                 ~dut.aw_valid | (writes < config.write_bursts))
    any_transfer = bench.wire(ar | r | aw | w | b, "transfer")
    due = bench.wire(dut.ar_valid | dut.aw_valid | dut.w_valid | (reads != 0) | (writes != 0), "transfer_due")
    silent = Signal(SILENT_BITS + 1, name="silent_cycles")
    limit = bench.constant(SILENT_BITS, "allowed")
    bench.assume("limit", "the host sets the limit before a launch", dut.limit == limit)
    with m.If(~dut.enable | ~due | any_transfer):
        m.d.sync += silent.eq(0)
    with m.Elif((limit == 0) | (silent + 1 < limit)):
        m.d.sync += silent.eq(silent + 1)
    bench.lemma("counts", "bursts and silent cycles are counted", bench.register("reads") == reads,
                bench.register("writes") == writes, reads <= config.read_bursts + config.fetch_queue,
                writes <= config.write_bursts,
                (bench.register("silent") == silent[:SILENT_BITS]) | (limit == 0),
                (silent < limit) | (limit == 0) | (silent == 0))
    bench.always("expires", "it expires in the limit-th silent cycle in a row in which a transfer is due, and stays so",
                 dut.expired == (dut.enable & due & ~any_transfer & (limit != 0) & (silent + 1 == limit)))
    bench.cover("expired", "it expires in the third silent cycle, with a read outstanding", dut.expired & (limit == 3)
                & (reads == 2))
