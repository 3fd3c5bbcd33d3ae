"""The compiled engine against a plain simulator of docs/timing.md that steps every cycle.

``Reference`` shares no code with the engine (only the contract's resolve and decode); it keeps
registers, computes what happens in a cycle from them, and updates them at the end of the cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, TABLE_FIELDS, VOp, decode_table
from gemmule.resolve import OUT_FIELDS, resolve
from gemmule.sim.run import Model
from gemmule.timing import Timing

LOAD, STORE, MATRIX, VECTOR = range(4)
NAMES = ("tiny", "base", "odd", "wide")
Case = Callable[[int, Config], tuple[Model, bytes, int]]


class SlowDram:
    """Serves bursts in order of arrival; tells per cycle which beat or response it presents."""

    def __init__(self, config: Config) -> None:
        self.bus, self.d = config.bus_bytes, config.dram
        self.bus_free, self.direction = 0, ""
        self.rows: dict[int, int] = {}
        self.bank_end: dict[int, int] = {}
        self.events: dict[int, list[tuple]] = {}

    def arrive(self, now: int, direction: str, address: int, size: int, tag: tuple) -> None:
        d = self.d
        beats = len({(address + i) // self.bus for i in range(size)})
        index = address // d.row_bytes
        bank, row = index % d.banks, index // d.banks
        if self.rows.get(bank) == row:
            prep = now
        else:
            prep = max(now, self.bank_end.get(bank, 0)) + d.row_miss
        self.rows[bank] = row
        bus = self.bus_free
        if self.direction not in ("", direction):
            bus += d.turnaround
        start = max(bus, prep + d.latency)
        if d.refresh_period:
            q = (start + beats - 1) // d.refresh_period
            if q >= 1 and start < q * d.refresh_period + d.refresh_cycles:
                start = q * d.refresh_period + d.refresh_cycles
        self.bus_free = self.bank_end[bank] = start + beats
        self.direction = direction
        if direction == "read":
            for i in range(beats):
                self.events.setdefault(start + i, []).append((*tag, i, i == beats - 1))
        else:
            self.events.setdefault(start + beats, []).append(tag)


def cut(config: Config, address: int, size: int) -> list[tuple[int, int]]:
    pieces: list[tuple[int, int]] = []
    for a in range(address, address + size):
        if not pieces or a % config.burst_bytes == 0:
            pieces.append((a, 0))
        pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
    return pieces


class Reference:
    def __init__(self, config: Config, timing: Timing, image: bytes, address: int, model: Model) -> None:
        self.c, self.x = config, timing
        table = decode_table(image)
        rows = resolve(table, model.bases, model.limits, model.lengths, config)
        names = list(OUT_FIELDS)
        self.commands = [dict(zip(names, map(int, row))) for row in rows]
        for command, row in zip(self.commands, table):
            fields = dict(zip(TABLE_FIELDS, map(int, row)))
            command.update({key: fields[key] for key in ("stride", "bytes")})
            command["waits"] = [fields[f"wait_{u}"] for u in ("load", "store", "matrix", "vector")]
        self.address = address

    def bursts(self, command: dict) -> list[tuple[int, int]]:
        return [piece for r in range(command["m"])
                for piece in cut(self.c, command["address"] + r * command["stride"], command["bytes"])]

    def vector_finish(self, t: int, v: dict) -> int:
        c, x, op, m, flags = self.c, self.x, v["op"], v["m"], v["flags"]
        groups = -(-v["n"] // c.dim)
        column = 3 if flags & 1 else 0
        wide = bool(flags & 4 or flags & 8)
        reads = {
            VOp.REQUANT: groups * (column + m * (2 if wide else 1)),
            VOp.PRODUCT: groups * m,
            VOp.ROPE: groups * (column + 4 * m),
            VOp.RMS_APPLY: groups * (2 + 2 * m),
            VOp.RMS_STAT: m * groups * 2,
            VOp.SOFTMAX_MAX: m * groups,
            VOp.SOFTMAX_EXP: m * groups,
            VOp.TABLE: max(1, 256 // c.dim),
        }[VOp(op)]
        last = t + x.vector_first + reads - 1
        if op == VOp.SOFTMAX_MAX:
            return last + x.vector_stat
        if op not in (VOp.RMS_STAT, VOp.SOFTMAX_EXP):
            return last + x.vector_write
        serial = x.rms_serial if op == VOp.RMS_STAT else x.softmax_serial
        period, done = reads // m, []
        for i in range(m):
            ready = t + x.vector_first - 1 + (i + 1) * period + x.vector_stat
            start = ready if i < c.dividers else max(ready, done[i - c.dividers])
            done.append(start + serial)
        return max([*done, last + x.vector_write] if op == VOp.SOFTMAX_EXP else done)

    def run(self) -> tuple[int, list[int], list[int]]:
        c, x, commands = self.c, self.x, self.commands
        count = len(commands)
        issue, finish = [-1] * count, [-1] * count
        dram = SlowDram(c)
        queue: deque[int] = deque()
        reserved, fetch_at = 0, 0
        decode, decode_seen = None, -1
        units: list[deque] = [deque() for _ in range(4)]
        dispatched, finished = [0] * 5, [0] * 5
        flying: list[list[int]] = [[] for _ in range(4)]
        holds: list[list] = []  # [stream, ports, first cycle in which it is no longer held]
        done_at: dict[int, list[int]] = {}  # cycle of finish -> commands
        generator, generator_from, bursts_up = deque(), 0, 0
        reader, reader_from, reader_hold = deque(), 0, None
        burst_number, beat_of_burst = 0, 0
        filled, send_ends, sending, unanswered = deque(), {}, None, 0
        preload_free = stream_free = 0
        stopped, t = False, -1
        while True:
            t += 1
            if t > 200_000:
                raise AssertionError("reference simulator does not end")
            holds = [hold for hold in holds if hold[2] is None or t < hold[2]]
            after, granted = [], []  # updates and claims at the end of this cycle

            # --- issue
            for u in (MATRIX, VECTOR, LOAD, STORE):
                if not units[u]:
                    continue
                i, targets = units[u][0]
                command = commands[i]
                ready = {
                    LOAD: not generator and len(flying[LOAD]) < c.load_commands,
                    STORE: not reader and len(flying[STORE]) < x.store_commands,
                    MATRIX: t >= preload_free and len(flying[MATRIX]) < x.matrix_commands,
                    VECTOR: not flying[VECTOR],
                }[u]
                if command["zero"]:
                    ready = not flying[u]
                if not ready or any(finished[w] < target for w, target in targets.items()):
                    continue
                streams = {LOAD: (0,), STORE: (1,), MATRIX: (2, 3, 4), VECTOR: (5, 6, 7)}[u]
                claims = {s: command[f"claim{k}"] for k, s in enumerate(streams)}
                if any(hold[0] != s and hold[1] & ports for s, ports in claims.items() for hold in holds):
                    continue
                issue[i] = t
                after.append(lambda u=u, i=i: (units[u].popleft(), flying[u].append(i)))
                new = {s: [s, ports, None] for s, ports in claims.items()}
                if command["zero"]:
                    zero = (x.load_zero, x.store_zero, x.matrix_zero, x.vector_zero)[u]
                    done_at.setdefault(t + zero, []).append(i)
                    break
                granted += new.values()
                command["hold"] = new
                if u == LOAD:
                    pieces = self.bursts(command)
                    after.append(lambda p=pieces, i=i: generator.extend(
                        (i, a, size, k == len(p) - 1) for k, (a, size) in enumerate(p)))
                    generator_from = t + x.load_first
                elif u == STORE:
                    pieces = self.bursts(command)
                    after.append(lambda p=pieces, i=i: reader.extend(
                        (i, a, size, k == len(p) - 1) for k, (a, size) in enumerate(p)))
                    reader_from, reader_hold = t + x.store_first, new[1]
                elif u == MATRIX:
                    tiles = -(-command["n"] // c.dim) * -(-command["k"] // c.dim)
                    slot = max(command["m"], c.dim // c.preload, x.matrix_rmw)
                    s = max(t + x.matrix_first + c.dim // c.preload, stream_free)
                    preload_free, stream_free = s + (tiles - 1) * slot, s + tiles * slot
                    f = stream_free + x.matrix_drain
                    new[2][2], new[3][2], new[4][2] = stream_free, preload_free, f + 1
                    done_at.setdefault(f, []).append(i)
                else:
                    f = self.vector_finish(t, command)
                    for hold in new.values():
                        hold[2] = f + 1
                    done_at.setdefault(f, []).append(i)
                break

            # --- decode register and dispatch
            pushed = False
            if decode is not None and not commands[decode]["fault"]:
                u = commands[decode]["unit"]
                if len(units[u]) < c.unit_queue:
                    pushed = True
                    waits = commands[decode]["waits"]
                    targets = {w: dispatched[w] - d + 1 for w, d in enumerate(waits) if d}
                    entry = (decode, targets)
                    after.append(lambda u=u, entry=entry: units[u].append(entry))
            if pushed:
                after.append(lambda u=u: dispatched.__setitem__(u, dispatched[u] + 1))
            take = bool(queue) and (decode is None or pushed)

            # --- read requests: fetch before load
            fetch_size = 0
            left = count * COMMAND_BYTES - fetch_at
            if left and t >= x.fetch_start:
                size = cut(c, self.address + fetch_at, left)[0][1]
                if c.fetch_queue - len(queue) - reserved >= size // COMMAND_BYTES:
                    fetch_size = size
            if fetch_size:
                first = fetch_at // COMMAND_BYTES
                dram.arrive(t, "read", self.address + fetch_at, fetch_size, ("fetch", first, fetch_size))
                fetch_at += fetch_size
            bursts_now = bursts_up
            if not fetch_size and generator and t >= generator_from and bursts_now < c.read_bursts:
                i, a, size, final = generator[0]
                dram.arrive(t, "read", a, size, ("load", i, final))
                after.append(generator.popleft)
                bursts_up += 1

            # --- store: reader, sender
            unanswered_now = unanswered
            if sending is None and filled:
                i, a, size, final, last_read, number = filled[0]
                if t >= last_read + x.store_send and unanswered_now < c.write_bursts:
                    filled.popleft()
                    sending = [i, a, size, final, number, -(-size // c.bus_bytes)]
                    unanswered += 1
            if sending is not None:
                sending[5] -= 1
                if sending[5] == 0:
                    i, a, size, final, number, _ = sending
                    dram.arrive(t, "write", a, size, ("answer", i, final))
                    after.append(lambda number=number, t=t: send_ends.__setitem__(number, t))
                    sending = None
            if reader and t >= reader_from and (burst_number < 2 or burst_number - 2 in send_ends):
                i, a, size, final = reader[0]
                beat_of_burst += 1
                if beat_of_burst == -(-size // c.bus_bytes):
                    entry = (i, a, size, final, t, burst_number)
                    after.append(lambda entry=entry: filled.append(entry))
                    after.append(reader.popleft)
                    burst_number, beat_of_burst = burst_number + 1, 0
                    if final:
                        reader_hold[2] = t + 1

            # --- what the DRAM presents
            for event in dram.events.pop(t, []):
                if event[0] == "fetch":
                    _, first, size, beat, _ = event
                    start = self.address + first * COMMAND_BYTES
                    for k in range(size // COMMAND_BYTES):
                        end = start + k * COMMAND_BYTES + COMMAND_BYTES - 1
                        if end // c.bus_bytes - start // c.bus_bytes == beat:
                            after.append(lambda n=first + k: queue.append(n))
                            reserved -= 1
                elif event[0] == "load":
                    _, i, final, _, last = event
                    if last:
                        bursts_up -= 1
                        if final:
                            done_at.setdefault(t + x.load_write, []).append(i)
                            commands[i]["hold"][0][2] = t + x.load_write + 1
                else:
                    _, i, final = event
                    unanswered -= 1
                    if final:
                        done_at.setdefault(t, []).append(i)
            reserved += fetch_size // COMMAND_BYTES

            # --- finishes of this cycle are visible in the next
            for i in done_at.pop(t, []):
                finish[i] = t
                u = commands[i]["unit"]
                after.append(lambda u=u, i=i: (
                    flying[u].remove(i), finished.__setitem__(u, finished[u] + 1)))

            for update in after:
                update()
            holds += granted
            if pushed:
                decode = None
            if take:
                decode, decode_seen = queue.popleft(), t + 1
                stopped = stopped or bool(commands[decode]["fault"])
            complete = sum(dispatched) == count or stopped
            if complete and not any(units) and not any(flying):
                last = max([f for f in finish if f >= 0], default=0)
                return max(last, decode_seen if stopped else 0) + x.done, issue, finish


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_random_programs(name: str, configs: dict[str, Config], case: Case) -> None:
    config, issued, faults, zeros = configs[name], 0, 0, 0
    first = 1000 * (1 + NAMES.index(name))
    for seed in range(first, first + 60):
        model, image, address = case(seed, config)
        model.load_program(image, address)
        result = model.run(timing_only=True)
        reference = Reference(config, model.timing, image, address, model)
        cycles, issue, finish = reference.run()
        assert result.issue.tolist() == issue, f"{name} seed {seed}: issue"
        assert result.finish.tolist() == finish, f"{name} seed {seed}: finish"
        assert result.cycles == cycles, f"{name} seed {seed}: cycles"
        for unit, split in result.counters.items():
            assert sum(split.values()) == cycles, f"{name} seed {seed}: counters of {unit}"
        issued += sum(at >= 0 for at in issue)
        faults += result.fault != 0
        zeros += sum(command["zero"] for command in reference.commands)
    assert issued > 500, "the generator makes programs that hardly run"
    assert min(faults, zeros) >= 2


MUTANTS: list[dict[str, int]] = [
    *({name: 1} for name in Timing.__dataclass_fields__),
    *({name: 1} for name in ("read_bursts", "load_commands", "write_bursts", "unit_queue", "dividers")),
    {"fetch_queue": 32},
    *({name: 1} for name in ("latency", "row_miss", "turnaround", "refresh_cycles", "refresh_period")),
    {"banks": 2}, {"row_bytes": 256},
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: next(iter(mutant)))
def test_a_changed_constant_is_seen(mutant: dict[str, int], configs: dict[str, Config], case: Case) -> None:
    """The programs above tell every constant of the contract from the same constant + 1."""
    (name, step), = mutant.items()
    odd = configs["odd"]
    # limits low enough to be met
    usual = replace(Timing.of(odd), matrix_commands=2, store_commands=2, matrix_rmw=9)
    for seed in range(3000, 3060):
        model, image, address = case(seed, odd)
        config, dram, timing = odd, odd.dram, usual
        if hasattr(timing, name):
            timing = replace(timing, **{name: getattr(timing, name) + step})
        elif hasattr(dram, name):
            dram = dram.model_copy(update={name: getattr(dram, name) + step})
            config = config.model_copy(update={"dram": dram})
        else:
            config = config.model_copy(update={name: getattr(config, name) + step})
        results = []
        for device in (Model(odd, usual), Model(config, timing)):
            device.bases, device.limits, device.lengths = model.bases, model.limits, model.lengths
            device.load_program(image, address)
            results.append(device.run(timing_only=True))
        if results[0].first_difference(results[1]):
            return
    raise AssertionError(f"no program of the test notices {name} + {step}")
