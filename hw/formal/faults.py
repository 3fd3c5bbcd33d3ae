"""The faults that are planted: for every property one with which it must fail."""

from __future__ import annotations

from collections.abc import Mapping

from gemmule.hw.formal.planted import Fault

__all__ = ["FAULTS"]


def _of(module: str, *faults: tuple[str, str, str, str]) -> tuple[Fault, ...]:
    return tuple(Fault(property, module, old, new, says) for property, says, old, new in faults)


FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "queue": _of(
        "queue",
        ("count", "a push beside a pop counts", "with m.If(self.push & ~self.pop)", "with m.If(self.push)"),
        ("order", "the head goes on to the second place", "head.eq(Mux(head == last, 0, head + 1))",
         "head.eq(Mux(head == last, 1, head + 1))")),
    "claims": _of(
        "command.claims",
        ("kept", "a claim pushed beside a release leaves a gap", "self.push, Cat(1, stays), stays",
         "self.push, Cat(1, used), stays"),
        ("given back", "what is released is still held", "staying.append(Mux(stays[i], moved, 0))",
         "staying.append(Mux(used[i], entry, 0))")),
    "issue": (
        *_of("command.claims", ("exclusive", "nobody looks at what the vector unit writes",
                                "if other != name and", "if other not in (name, 'vector.w') and")),
        *_of("command.issue",
             ("in flight", "one command too many may be in flight", "in_flight == 0, in_flight < limit",
              "in_flight == 0, in_flight <= limit"),
             ("finished", "commands of length zero do not count as finished", "self.finished[u] + self.finish[u]",
              "self.finished[u] + self.unit_finish[u]"),
             ("one", "only the two units of highest priority keep others back", "may[other] for other in higher",
              "may[other] for other in higher[:2]"),
             ("waits", "nobody waits", "self.valid[u] & waits.reached[u] & room", "self.valid[u] & room"),
             ("alone", "a command that runs alone does not wait", "Mux(self.alone[u] | zero[u],", "Mux(zero[u],"),
             ("start", "a skipped command starts", "self.issue[u] & ~zero[u]", "self.issue[u] & ~self.zero[u]"))),
    "dispatch": _of(
        "command.dispatch",
        ("order", "the place is dropped before the command leaves", "places.pop.eq(pushed)",
        "places.pop.eq(resolve.full)"),
        ("one queue", "a command goes into the queues of units before its own too", "pushed & (resolve.unit == u)",
         "pushed & (resolve.unit >= u)"),
        ("room", "a full queue is pushed", "(queue.level < config.unit_queue)", "(queue.level <= config.unit_queue)"),
        ("counts", "control commands are not counted", "self.total.eq(self.total + 1)",
         "self.total.eq(self.total + (resolve.unit != CONTROL))"),
        ("end", "one command too many", "spent.eq(self.total == self.most - 1)", "spent.eq(self.total == self.most)"),
        ("held", "a stopped launch goes on", "resolve.full & ~self.stop & ~fault.any()",
         "resolve.full & ~fault.any()")),
    "waits": _of(
        "command.waits",
        ("waits", "a finish in the cycle of the push is lost", "self.finish[v] & (later | last.any())",
         "self.finish[v] & last.any()"),
        ("backwards", "no distance is a wait for one command more than there are", "(self.distances[v] != 0) & (",
         "1 & (")),
    "loops": _of(
        "command.loops",
        ("left", "a borrow is lost", "Mux(lower[-1], high - 1, high)", "high"),
        ("count", "a step does not stop at the end", "Mux(reaches, low, self.within)", "self.within"),
        ("turns", "one turn too many", "left_turns.data == 2", "left_turns.data == 1"),
        ("fits", "nothing is left, and fits", "self.fits.eq(some & ((", "self.fits.eq(1 & (("),
        ("places", "a turn begins with the second command", "self.place.eq(body.data.begin)",
         "self.place.eq(body.data.begin + 1)")),
    "fetch": (
        *_of("command.fetch",
             ("stands", "the position moves before the bus accepts", "ahead.step.eq(requested)",
              "ahead.step.eq(read.req_valid)"),
             ("boundary", "a burst has its full length wherever it begins", "Array(most - i for i in range(most))",
              "Array(most for i in range(most))"),
             ("program", "the second command is the first", "ahead.first.eq(self.program[command_bits:])",
              "ahead.first.eq(self.program[command_bits:] + 1)"),
             ("room", "one place too many", "room.eq(places), reserved", "room.eq(places + 1), reserved"),
             ("done", "done before the last command", "(taken.left == 0)", "(taken.left <= 1)")),
        *_of("command.window", ("data", "a command is written where the next one to be taken stands",
                                "write.addr.eq(tail[:bits])", "write.addr.eq(after[:bits])"))),
    "fetch-repeats": _of(
        "command.fetch",
        ("stands", "a REPEAT withdraws a request", "(~repeat.pause | repeat.standing)", "~repeat.pause"),
        ("places", "an anchored body gives its places back with every command",
         "Mux(anchored, leaves_anchor, step)", "step")),
    "bursts": _of(
        "move.bursts",
        ("boundary", "a burst has its full length wherever it begins", "room.eq(config.burst_beats - offset)",
         "room.eq(config.burst_beats)"),
        ("contiguous", "the next burst begins a whole burst further", "[beat.eq(beat + room)",
         "[beat.eq(beat + config.burst_beats)"),
        ("whole", "a row that ends at a boundary goes on", "few + offset <= config.burst_beats",
         "few + offset < config.burst_beats"),
        ("rows", "every burst of the last row is the last", "self.last.eq(self.row_end & (rows == 1))",
         "self.last.eq(rows == 1)"),
        ("stable", "the next row is offered unasked", "| begin | (self.next & self.row_end)", "| begin | self.row_end"),
        ("beat by beat", "the last beat of a row is told one late", "self.row_over.eq(rest == 2)",
         "self.row_over.eq(rest == 1)"),
        ("entries", "every second entry is read", "m.d.sync += entry.eq(entry + 1)",
        "m.d.sync += entry.eq(entry + 2)")),
    "store-reader": _of(
        "move.store_read",
        ("in turn", "the reader takes a buffer if any is free", "Mux(buffer, self.busy[1], self.busy[0])",
         "(self.busy[0] & self.busy[1])"),
        ("free before writing", "data go to the other buffer", "beat[:exact_log2(config.burst_beats)], buffer)",
         "beat[:exact_log2(config.burst_beats)], ~buffer)"),
        ("length", "a burst is told one beat too long", "self.burst.beats.eq(bursts.beats)",
         "self.burst.beats.eq(bursts.beats + 1)")),
    "store-sender": _of(
        "move.store",
        ("address stands", "the address is offered for one cycle", "begin | (sending & ~aw_done)", "begin"),
        ("data stand", "a beat goes on before it is accepted", "with m.If(w_now):", "with m.If(axi.wvalid):"),
        ("boundary", "a burst is told one beat too long", "axi.awlen.eq(slot.beats - 1)", "axi.awlen.eq(slot.beats)"),
        ("last", "only a burst of full length has a last beat", "sent_beats + 1 == slot.beats",
         "sent_beats + 1 == config.burst_beats"),
        ("channels", "a burst ends without its address", "(aw_done | aw_now) & (w_done", "(w_done"),
        ("outstanding", "one burst too many", "outstanding != config.write_bursts",
        "outstanding <= config.write_bursts"),
        ("kept", "both buffers take the burst", "with m.If(reader.fill[i])", "with m.If(reader.fill.any())"),
        ("finish", "the first buffer tells whether a command ends", "push_data.eq(slot.last)",
         "push_data.eq(slots[0].last)")),
    "load-requests": _of(
        "move.load",
        ("stands", "a request is withdrawn when a burst returns", "(beats < config.read_beats)",
         "(beats < config.read_beats) & ~returned"),
        ("boundary", "a request is one beat too long", "req_len.eq(bursts.beats - 1)", "req_len.eq(bursts.beats)"),
        ("in flight", "one burst too many", "in_flight != config.read_bursts", "in_flight <= config.read_bursts"),
        ("places", "a burst's place stays when the next is requested meanwhile", "places.pop.eq(returned)",
         "places.pop.eq(returned & ~accepted)"),
        ("whole", "a burst is dropped when the bus does not take it at once", "bursts.next.eq(accepted)",
         "bursts.next.eq(read.req_valid)")),
    "load-whole": _of(
        "move.load", ("stands", "a BROADCAST does not wait for its beats", "(in_flight == 0) & ~writer.busy",
                      "~writer.busy")),
    "read-arbiter": _of(
        "device.read_arbiter",
        ("stands", "fetch overtakes a request that stands", "Mux(locked, owner, ~fetch.req_valid)", "~fetch.req_valid"),
        ("one", "fetch believes that its request was accepted", "axi.arready & ~(locked & owner)", "axi.arready"),
        ("room", "too few tags", "depth=config.read_bursts + config.fetch_queue", "depth=4"),
        ("matched", "a burst has the tag of the one before", "tags.w_data.eq(choice)", "tags.w_data.eq(owner)")),
    "registers": _of(
        "device.csr",
        ("one answer", "a write does not wait for the answer to the one before",
         "has_address & has_data & (~bus.bvalid | bus.bready)", "has_address & has_data"),
        ("answers stand", "a read does not wait for the one before", "bus.arready.eq(~reading & ~bus.rvalid)",
         "bus.arready.eq(~reading)"),
        ("actions", "a byte that is not written starts a launch", "strobe[0] & value[bit]", "value[bit]"),
        ("written", "parameters change while the device is busy", "change.eq(write & ~self.busy)", "change.eq(write)"),
        ("stand", "lengths change while the device is busy", "Mux(change & (offset[among:] == own)",
         "Mux(write & (offset[among:] == own)"),
        ("length", "both bytes of a length are written", "(offset[among:] == own), strobe, 0)",
         "(offset[among:] == own), 3, 0)"),
        ("read", "a word is read one bit too low", "register[:WORD] & meant", "register[1:WORD] & meant")),
    "control": _of(
        "device.control",
        ("start", "a launch does not wait for fetch", "self.start.eq(pending & self.fetch_idle)",
        "self.start.eq(pending)"),
        ("busy", "a waiting request is not busy", "self.busy.eq(pending | running)", "self.busy.eq(running)"),
        ("end", "a launch ends before its last command", "& (self.dispatched == self.finished))", ")"),
        ("interrupt", "a request that is ignored clears it", "with m.If(self.irq_clear)",
         "with m.If(self.irq_clear | self.request)"),
        ("first fault", "a later fault takes its place", "with m.If(running & ~faulted)", "with m.If(running)"),
        ("stop", "dispatch goes on after a fault", "self.stop.eq(faulted | ~running)", "self.stop.eq(~running)"),
        ("hung", "a hung device starts again", "self.request & ~self.busy & ~hung", "self.request & ~self.busy"),
        ("cycles", "the first cycle is not counted", "running.eq(1), self.cycles.eq(1)",
        "running.eq(1), self.cycles.eq(0)")),
    "watchdog": _of("device.watchdog", ("expires", "it expires a cycle late", "silent + 1 >= self.limit",
                                        "silent >= self.limit")),
}
