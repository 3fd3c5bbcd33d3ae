"""A plain simulator of docs/timing.md that steps every cycle, for the tests of the compiled engine.

It shares no code with the engine (only the contract's resolve and decode): registers hold a state, a
cycle computes what happens from them, and updates them at its end.
"""

from __future__ import annotations

from collections import Counter, deque
from types import ModuleType

from gemmule.config import Config
from gemmule.csr import COUNTERS
from gemmule.isa import COMMAND_BYTES, CONTROL, TABLE_FIELDS, MatrixFlag, MoveFlag, decode, decode_table
from gemmule.resolve import FAULTS, OUT_FIELDS, resolve
from gemmule.sim.simulator import Simulator

from ...nests import as_arrays, interpret
from .reference_front import Front

LOAD, STORE, MATRIX, VECTOR, SELECT = range(5)
NAMES = ("load", "store", "matrix", "vector", "select")


class SlowDram:
    """Serves bursts in order of arrival; tells per cycle which beat or response it presents."""

    def __init__(self, config: Config) -> None:
        self.d = config.dram
        self.bus_free, self.direction = 0, ""
        self.rows: dict[int, int] = {}
        self.bank_end: dict[int, int] = {}
        self.events: dict[int, list[tuple]] = {}

    def arrive(self, now: int, direction: str, address: int, tags: list[tuple]) -> None:
        """A burst with one tag per beat; a write's last tag comes with its response."""
        d = self.d
        length = len(tags) * d.beat_cycles
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
            q = (start + length - 1) // d.refresh_period
            if q >= 1 and start < q * d.refresh_period + d.refresh_cycles:
                start = q * d.refresh_period + d.refresh_cycles
        self.bus_free = self.bank_end[bank] = start + length
        self.direction = direction
        if direction == "read":
            for i, tag in enumerate(tags):
                self.events.setdefault(start + i * d.beat_cycles, []).append(tag)
        else:
            self.events.setdefault(start + length, []).append(tags[-1])


def cut(config: Config, address: int, size: int) -> list[range]:
    """Byte addresses of a DRAM row, cut where a multiple of ``burst_bytes`` begins."""
    pieces, begin = [], address
    for a in range(address + 1, address + size):
        if a % config.burst_bytes == 0:
            pieces.append(range(begin, a))
            begin = a
    return [*pieces, range(begin, address + size)]


class Reference:
    """One launch; ``skipped`` are commands whose predicate is 0, ``indices`` DRAM rows of INDEXED moves.

    ``times`` is the module ``engine_times``.
    """

    def __init__(
        self, model: Simulator, image: bytes, address: int, skipped: set[int], indices: dict, times: ModuleType,
    ) -> None:
        self.times = times
        self.c, self.x, self.address = model.config, model.timing, address
        self.program = [decode(int.from_bytes(image[at:at + COMMAND_BYTES], "little"))
                        for at in range(0, len(image), COMMAND_BYTES)]
        self.steps = interpret(self.program, self.c, model.lengths.tolist()).steps
        table = decode_table(image)
        self.commands: list[dict] = []
        for i, step in enumerate(self.steps):
            row = table[step.place]
            if self.program[step.place].unit == CONTROL:
                self.commands.append({"unit": int(CONTROL), "fault": FAULTS.index(step.fault or "none")})
                continue
            registers = as_arrays(step.state, model.bases, model.limits)
            resolved = resolve(row[None], *registers, self.c)[0]
            command = dict(zip(OUT_FIELDS, map(int, resolved)))
            self.commands.append(command)
            fields = dict(zip(TABLE_FIELDS, map(int, row)))
            command.update({key: fields[key] for key in ("stride", "bytes", "predicate", "period")})
            command["skipped"] = i in skipped
            command["nothing"] = command["zero"] or i in skipped
            command["waits"] = [fields[f"wait_{u}"] for u in NAMES]
            has = {bit for bit in range(8) if command["flags"] >> bit & 1}
            command["has"] = has
            command["long"] = (command["unit"] == LOAD and not command["nothing"]
                               and bool(has & {MoveFlag.ZERO, MoveFlag.BROADCAST}))
            if command["unit"] in (LOAD, STORE):
                rows = list(indices[i]) if i in indices else list(range(command["m"]))
                size = command["bytes"]
                command["lines"] = [(command["address"] + r * command["stride"], size) for r in rows]
                if not has & {MoveFlag.INDEXED, MoveFlag.BROADCAST} and command["stride"] == size and (
                        size % self.c.bus_bytes == 0):
                    command["lines"] = [(command["address"], command["m"] * size)]
                command["pause"] = model.timing.index_cycles if MoveFlag.INDEXED in has else 0
        # what dispatch knows: the dataflow before each matrix command, and predicates
        dataflow, predicate = False, 0
        for command in self.commands:
            if command["unit"] == MATRIX:
                stationary = MatrixFlag.OUTPUT_STATIONARY in command["has"]
                command["alone"] = bool(predicate) or (stationary != dataflow and not command["zero"])
                dataflow, predicate = dataflow if command["zero"] else stationary, command["predicate"]

    def beats(self, piece: range) -> list[int]:
        return sorted({a // self.c.bus_bytes for a in piece})

    def gaps(self, i: int, row: int, pieces: list[range]) -> list[tuple[int, range]]:
        """Bursts of a DRAM row, each with the cycles after the burst before in which it may follow."""
        pause = self.commands[i]["pause"]
        return [(pause if row and pause and n == 0 else 1, piece) for n, piece in enumerate(pieces)]

    def load_bursts(self, i: int) -> list[tuple[int, list[tuple]]]:
        """Per burst its gap, and per beat: ("load", command, rows of writes that it completes, last of the burst)."""
        command, bus, bursts = self.commands[i], self.c.bus_bytes, []
        broadcast = MoveFlag.BROADCAST in command["has"]
        for r, (begin, size) in enumerate(command["lines"][:1] if broadcast else command["lines"]):
            end = begin + size
            completes = Counter((min(a + bus, end) - 1) // bus for a in range(begin, end, bus))
            for gap, piece in self.gaps(i, r, cut(self.c, begin, size)):
                beats = self.beats(piece)
                writes = command["m"] if broadcast else 1
                tags = [("load", i, writes * completes[b], b == beats[-1]) for b in beats]
                bursts.append((gap, [(piece[0], tag) for tag in tags]))
        return bursts

    def store_bursts(self, i: int) -> list[tuple[int, int, range, bool]]:
        v = self.commands[i]
        rows = [self.gaps(i, r, cut(self.c, *line)) for r, line in enumerate(v["lines"])]
        pieces = [piece for row in rows for piece in row]
        return [(gap, i, piece, n == len(pieces) - 1) for n, (gap, piece) in enumerate(pieces)]

    def run(self) -> tuple[int, list[int], list[int], dict[str, int]]:
        """(cycles, issue, finish, counters by name)."""
        c, x, commands = self.c, self.x, self.commands
        count = len(commands)
        issue, finish = [-1] * count, [-1] * count
        counts = dict.fromkeys(COUNTERS, 0)
        dram = SlowDram(c)
        front = self.front = Front(c, x, self.address, self.program, self.steps)
        fault_seen = -1
        units: list[deque] = [deque() for _ in NAMES]
        dispatched, finished = [0] * len(NAMES), [0] * len(NAMES)
        flying: list[list[int]] = [[] for _ in NAMES]
        holds: list[list] = []  # [stream, ports, first cycle in which it is no longer held]
        done_at: dict[int, list[int]] = {}  # cycle of finish -> commands
        generator, generator_from, bursts_up, beats_up = deque(), 0, 0, 0
        writes, writes_left = deque(), Counter()  # (first cycle, command); writes to come by command
        reader, reader_from, reader_hold = deque(), 0, None
        burst_number, beat_of_burst = 0, 0
        filled, send_ends, sending, unanswered = deque(), {}, None, 0
        preload_free = stream_free = 0
        idle_seen = {LOAD: 0, STORE: 0}  # first cycles in which issue sees generator and reader idle
        stopped, t, cycles = False, -1, None

        def traffic(purpose: str, beats: int) -> None:
            counts[f"{purpose}_bytes"] += beats * c.bus_bytes
            counts[f"{purpose}_bursts"] += 1

        def up(bursts: int, beats: int) -> None:
            nonlocal bursts_up, beats_up
            bursts_up += bursts
            beats_up += beats

        asked = range(0)  # the commands that fetch has decided to request
        while t + 1 != cycles:
            t += 1
            if t > 400_000:
                raise AssertionError("reference simulator does not end")
            holds = [hold for hold in holds if hold[2] is None or t < hold[2]]
            after, granted = [], []  # updates and claims at the end of this cycle
            moved = {LOAD: False, STORE: False}
            causes = {}

            # --- issue
            chosen = None
            for u in (MATRIX, VECTOR, SELECT, LOAD, STORE):
                causes[u] = "flight" if flying[u] else "empty"
                if not units[u]:
                    continue
                i, targets = units[u][0]
                command = commands[i]
                ready = {  # what a unit says is seen some cycles later
                    LOAD: not generator and t >= idle_seen[LOAD] and len(flying[LOAD]) < c.load_commands,
                    STORE: not reader and t >= idle_seen[STORE] and len(flying[STORE]) < x.store_commands,
                    MATRIX: t >= preload_free - 1 + x.unit_report and len(flying[MATRIX]) < x.matrix_commands,
                    VECTOR: not flying[VECTOR], SELECT: not flying[SELECT],
                }[u]
                if command["nothing"] or command["long"] or command.get("alone"):
                    ready = not flying[u]
                if any(commands[other]["long"] for other in flying[u]):
                    ready = False
                waiting = any(finished[w] < target for w, target in targets.items())
                streams = {LOAD: (0,), STORE: (1,), MATRIX: (2, 3, 4), VECTOR: (5, 6, 7), SELECT: (8, 9)}[u]
                claims = {s: 0 if command["nothing"] else command[f"claim{k}"] for k, s in enumerate(streams)}
                if not flying[u]:
                    causes[u] = "waiting" if waiting else "ports"
                if chosen is not None or not ready or waiting:
                    continue
                if any(hold[0] != s and hold[1] & ports for s, ports in claims.items() for hold in holds):
                    continue
                chosen, issue[i], causes[u] = u, t, "flight"
                after.append(lambda u=u, i=i: (units[u].popleft(), flying[u].append(i)))
                new = {s: [s, ports, None] for s, ports in claims.items()}
                if command["nothing"]:
                    zero = (x.load_zero, x.store_zero, x.matrix_zero, x.vector_zero, x.select_zero)[u]
                    done_at.setdefault(t + zero, []).append(i)
                    continue
                granted += new.values()
                command["hold"] = new
                start, later = t + x.unit_start, x.unit_report
                if u == LOAD and MoveFlag.ZERO in command["has"]:
                    writes_left[i] = command["m"] * len(range(0, command["bytes"], c.bus_bytes))
                    writes.extend([(start + x.load_fill, i)] * writes_left[i])
                elif u == LOAD:
                    bursts = self.load_bursts(i)
                    writes_left[i] = sum(tag[2] for _, burst in bursts for _, tag in burst)
                    after.append(lambda bursts=bursts: generator.extend(bursts))
                    generator_from = start + x.load_first + command["pause"]
                elif u == STORE:
                    after.append(lambda i=i: reader.extend(self.store_bursts(i)))
                    reader_from, reader_hold = start + x.store_first + command["pause"], new[1]
                elif u == MATRIX:
                    preload_free, b_free, stream_free, f = self.times.matrix(c, x, start, command, stream_free)
                    f += later
                    new[2][2], new[3][2], new[4][2] = stream_free + later, b_free + later, f + 1
                    done_at.setdefault(f, []).append(i)
                else:
                    f = (self.times.vector if u == VECTOR else self.times.select)(c, x, start, command) + later
                    for hold in new.values():
                        hold[2] = f + 1
                    done_at.setdefault(f, []).append(i)

            # --- resolve and dispatch
            pushed = False
            head = front.head()
            if head is not None and not commands[head]["fault"]:
                u = commands[head]["unit"]
                if u == CONTROL:
                    pushed = True
                elif len(units[u]) < c.unit_queue:
                    pushed = True
                    waits = commands[head]["waits"]
                    entry = (head, {w: dispatched[w] - d + 1 for w, d in enumerate(waits) if d})
                    after.append(lambda u=u, entry=entry: units[u].append(entry))
                    after.append(lambda u=u: dispatched.__setitem__(u, dispatched[u] + 1))
            take, drop, effect = t >= x.registers and front.wants(), front.drops(), front.effect()

            # --- read requests: fetch before load
            fetched, asked = asked, front.burst() if t >= x.fetch_start - 1 else range(0)
            if fetched:  # decided in the cycle before
                ends = Counter((a + COMMAND_BYTES - 1) // c.bus_bytes for a in fetched[::COMMAND_BYTES])
                tags = [("fetch", ends[beat]) for beat in self.beats(fetched)]
                dram.arrive(t, "read", fetched[0], tags)
                traffic("program", len(tags))
            broadcasting = any(commands[i]["long"] for i in flying[LOAD])
            if (not fetched and generator and t >= generator_from and bursts_up < c.read_bursts
                    and beats_up < c.read_beats and not (broadcasting and (bursts_up or writes))):
                burst = generator[0][1]
                if len(generator) > 1:
                    generator_from = t + generator[1][0]
                dram.arrive(t, "read", burst[0][0], [tag for _, tag in burst])
                traffic("load", len(burst))
                after.append(generator.popleft)
                idle_seen[LOAD] = t + 1 + x.unit_report
                after.append(lambda burst=burst: up(1, len(burst)))

            # --- store: reader, sender
            unanswered_now = unanswered
            if sending is None and filled:
                i, piece, final, last_read, number = filled[0]
                if t >= last_read + x.store_send and unanswered_now < c.write_bursts:
                    filled.popleft()
                    sending = [i, piece, final, number, len(self.beats(piece))]
                    traffic("store", sending[4])
                    unanswered += 1
            if sending is not None:
                moved[STORE] = True
                sending[4] -= 1
                if sending[4] == 0:
                    i, piece, final, number, _ = sending
                    dram.arrive(t, "write", piece[0], [("answer", i, final)] * len(self.beats(piece)))
                    after.append(lambda number=number, t=t: send_ends.__setitem__(number, t))
                    sending = None
            if reader and t >= reader_from and (burst_number < 2 or burst_number - 2 in send_ends):
                _, i, piece, final = reader[0]
                beat_of_burst += 1
                if beat_of_burst == len(self.beats(piece)):
                    entry = (i, piece, final, t, burst_number)
                    after.append(lambda entry=entry: filled.append(entry))
                    after.append(reader.popleft)
                    idle_seen[STORE] = t + 1 + x.unit_report
                    burst_number, beat_of_burst = burst_number + 1, 0
                    if not final:
                        reader_from = t + reader[1][0]
                    if final:
                        reader_hold[2] = t + 1 + x.unit_report

            # --- what the DRAM presents
            arrived = 0
            for kind, *event in dram.events.pop(t, []):
                if kind == "fetch":
                    arrived += event[0]
                elif kind == "load":
                    i, chunks, last = event
                    moved[LOAD] = True
                    writes.extend([(t + x.load_write, i)] * chunks)
                    after.append(lambda last=last: up(-last, -1))
                else:
                    i, final = event
                    unanswered -= 1
                    if final:
                        done_at.setdefault(t + x.unit_report, []).append(i)

            # --- one chunk is written
            if writes and writes[0][0] <= t:
                i = writes[0][1]
                after.append(writes.popleft)
                moved[LOAD] |= MoveFlag.ZERO in commands[i]["has"]
                writes_left[i] -= 1
                if writes_left[i] == 0:
                    done_at.setdefault(t + x.unit_report, []).append(i)
                    commands[i]["hold"][0][2] = t + x.unit_report + 1

            # --- finishes of this cycle are visible in the next
            for i in done_at.pop(t, []):
                finish[i] = t
                u = commands[i]["unit"]
                after.append(lambda u=u, i=i: (
                    flying[u].remove(i), finished.__setitem__(u, finished[u] + 1)))

            for u, cause in causes.items():
                if cause == "flight":
                    cause = "busy" if moved.get(u, True) else "dram"
                counts[f"{NAMES[u]}_{cause}"] += 1
            for update in after:
                update()
            holds += granted
            if asked:
                front.do_request(asked)
            front.arrived += arrived
            if drop:
                front.do_drop()
            if effect is not None:
                front.do_effect(effect)
            front.do_move(pushed, front.do_take() if take else None)
            head = front.head()
            if not stopped and head is not None and commands[head]["fault"]:
                stopped, fault_seen = True, t + 1
            if cycles is None and (front.finished or stopped) and not any(units) and not any(flying):
                cycles = max(t, fault_seen) + x.done
        return cycles, issue, finish, counts
