// SPDX-License-Identifier: Apache-2.0
//
// DRAM behind the AXI4 port of a verilated device, with the rules of docs/timing.md, section DRAM, and what goes wrong
// on the bus. A launch takes as many cycles on it as on the model and in the SystemVerilog testbench.
#ifndef GEMMULE_DRAM_HPP
#define GEMMULE_DRAM_HPP

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include "gemmule.h"
}

class Dram {
public:
    explicit Dram(uint64_t bytes) : memory_(bytes) {}

    void put(uint64_t address, const void *bytes, uint64_t count)
    {
        std::memcpy(span(address, count), bytes, count);
    }

    void get(uint64_t address, void *bytes, uint64_t count) { std::memcpy(bytes, span(address, count), count); }

    uint64_t size() const { return memory_.size(); }

    // What the device offers before a rising clock edge; afterwards the memory's next outputs are in `next`.
    template <class Top> void step(const Top &top)
    {
        if (top.trace_start) {
            if (!reads_.empty() || !writes_.empty() || !responses_.empty())
                fail("a launch begins with traffic outstanding");
            now_ = 0;
            bus_free_ = 0;
            direction_ = NONE;
            banks_ = {};
        }
        if (read_valid_) {
            if (!top.m_axi_rready)
                fail("a beat of a read is not taken");
            if (++reads_.front().done == reads_.front().beats)
                reads_.pop_front();
        }
        if (response_valid_) {
            if (!top.m_axi_bready)
                fail("a response is not taken");
            responses_.pop_front();
        }
        if (top.m_axi_arvalid) {
            Burst burst{first_byte(top.m_axi_araddr), top.m_axi_arlen + 1u, 0, 0};
            burst.start = schedule(READ, burst);
            reads_.push_back(burst);
        }
        if (top.m_axi_awvalid)
            writes_.push_back({first_byte(top.m_axi_awaddr), top.m_axi_awlen + 1u, 0, 0});
        if (top.m_axi_wvalid)
            write(top.m_axi_wdata, uint64_t(top.m_axi_wstrb), top.m_axi_wlast);
        read_valid_ = !reads_.empty() && reads_.front().start + reads_.front().done * BEAT <= now_ + 1;
        response_valid_ = !responses_.empty() && responses_.front() <= now_ + 1;
        now_++;
    }

    // The memory's outputs, behind the edge. It takes requests in every cycle.
    template <class Top> void drive(Top &top) const
    {
        top.m_axi_arready = top.m_axi_awready = top.m_axi_wready = 1;
        top.m_axi_rvalid = read_valid_;
        top.m_axi_bvalid = response_valid_;
        top.m_axi_rresp = top.m_axi_bresp = 0;
        top.m_axi_rid = top.m_axi_bid = 0;
        if (read_valid_) {
            const Burst &burst = reads_.front();
            std::memcpy(&top.m_axi_rdata, &memory_[burst.address + burst.done * GEMMULE_BUS_BYTES], GEMMULE_BUS_BYTES);
            top.m_axi_rlast = burst.done + 1 == burst.beats;
        }
    }

private:
    enum Direction { NONE, READ, WRITE };
    static constexpr uint64_t BEAT = GEMMULE_DRAM_BEAT_CYCLES, PERIOD = GEMMULE_DRAM_REFRESH_PERIOD;

    struct Burst {
        uint64_t address, beats, done, start;
    };
    struct Bank {
        uint64_t end = 0, row = 0;
        bool open = false;
    };

    // Of the first beat: all beats are whole.
    static uint64_t first_byte(uint64_t address) { return address - address % GEMMULE_BUS_BYTES; }

    [[noreturn]] static void fail(const std::string &what) { throw std::runtime_error("bus: " + what); }

    uint8_t *span(uint64_t address, uint64_t count)
    {
        if (address > memory_.size() || count > memory_.size() - address)
            fail("DRAM addresses must stay below " + std::to_string(memory_.size()) + ", not reach "
                 + std::to_string(address + count));
        return memory_.data() + address;
    }

    // The cycle in which a burst begins on the DRAM's bus: it arrives now, and is served in order.
    uint64_t schedule(Direction kind, const Burst &burst)
    {
        span(burst.address, burst.beats * GEMMULE_BUS_BYTES);
        if (burst.address % 4096 + burst.beats * GEMMULE_BUS_BYTES > 4096)
            fail("a burst crosses 4 KiB");
        uint64_t index = burst.address / GEMMULE_DRAM_ROW_BYTES, row = index / GEMMULE_DRAM_BANKS;
        Bank &bank = banks_[index % GEMMULE_DRAM_BANKS];
        uint64_t ready = now_, duration = burst.beats * BEAT, start = bus_free_;
        if (!bank.open || bank.row != row)
            ready = (bank.end > ready ? bank.end : ready) + GEMMULE_DRAM_ROW_MISS;
        if (direction_ != NONE && direction_ != kind)
            start += GEMMULE_DRAM_TURNAROUND;
        if (ready + GEMMULE_DRAM_LATENCY > start)
            start = ready + GEMMULE_DRAM_LATENCY;
        if (PERIOD) {
            uint64_t period = PERIOD ? (start + duration - 1) / PERIOD : 0;
            if (period && start < period * PERIOD + GEMMULE_DRAM_REFRESH_CYCLES)
                start = period * PERIOD + GEMMULE_DRAM_REFRESH_CYCLES;
        }
        bus_free_ = bank.end = start + duration;
        bank.open = true;
        bank.row = row;
        direction_ = kind;
        return start;
    }

    template <class Data> void write(const Data &data, uint64_t strobe, bool last)
    {
        if (writes_.empty())
            fail("a beat of a write comes before its address");
        Burst &burst = writes_.front();
        const uint8_t *bytes = reinterpret_cast<const uint8_t *>(&data);
        uint8_t *to = span(burst.address + burst.done * GEMMULE_BUS_BYTES, GEMMULE_BUS_BYTES);
        for (unsigned i = 0; i < GEMMULE_BUS_BYTES; i++)
            if (strobe >> i & 1)
                to[i] = bytes[i];
        if (last != (++burst.done == burst.beats))
            fail("the last beat of a write is not where its address says");
        if (last) {
            responses_.push_back(schedule(WRITE, burst) + burst.beats * BEAT);
            writes_.pop_front();
        }
    }

    std::vector<uint8_t> memory_;
    std::deque<Burst> reads_, writes_;
    std::deque<uint64_t> responses_;
    std::array<Bank, GEMMULE_DRAM_BANKS> banks_;
    uint64_t now_ = 0, bus_free_ = 0;
    Direction direction_ = NONE;
    bool read_valid_ = false, response_valid_ = false;
};

#endif
