// SPDX-License-Identifier: Apache-2.0
//
// Testbench of the small system: its clock, its DRAM and flash, and a terminal on its UART.
//
// usage: soc +firmware=FILE IMAGE; what the UART says is standard output, the number of cycles the last line.
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include <verilated.h>

#include "Vtop.h"
#include "gemmule_dram.hpp"

namespace {

constexpr uint32_t FLASH = 0x40000000, DRAM_AT = 0x80000000;
constexpr int DIVIDER = 4;                        // as in soc.sv
constexpr uint64_t LONGEST = 4000u * 1000 * 1000; // cycles

// Bytes from the UART's line: the middle of each bit behind a falling start bit.
class Terminal {
public:
    void sample(bool line)
    {
        if (left_ == 0) {
            if (!line)
                left_ = 10 * DIVIDER - 1;
            return;
        }
        int at = 10 * DIVIDER - left_--, bit = at / DIVIDER;
        if (at % DIVIDER == DIVIDER / 2 && bit >= 1 && bit <= 8)
            byte_ = byte_ >> 1 | line << 7;
        if (left_ == 0)
            std::putchar(byte_);
    }

private:
    int left_ = 0;
    uint8_t byte_ = 0;
};

class Memory {
public:
    Memory(Dram &dram, std::vector<char> flash) : dram_(dram), flash_(std::move(flash)) {}

    // A word of flash or DRAM, as the core asks before an edge.
    void step(const Vtop &top)
    {
        if (!top.mem_valid)
            return;
        uint32_t address = top.mem_address;
        data = 0;
        if (address >= DRAM_AT) {
            dram_.get(address - DRAM_AT, &data, 4);
            if (top.mem_write) {
                for (int i = 0; i < 4; i++)
                    if (top.mem_sel >> i & 1)
                        dram_.put(address - DRAM_AT + i, reinterpret_cast<const char *>(&top.mem_wdata) + i, 1);
            }
        } else if (address - FLASH < flash_.size()) {
            uint32_t left = flash_.size() - (address - FLASH);
            std::memcpy(&data, flash_.data() + (address - FLASH), left < 4 ? left : 4);
        }
    }

    uint32_t data = 0;

private:
    Dram &dram_;
    std::vector<char> flash_;
};

int run(int count, char **words)
{
    VerilatedContext &context = *Verilated::threadContextp();
    context.commandArgs(count, words);
    std::ifstream file(words[count - 1], std::ios::binary);
    std::vector<char> flash{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (count != 3 || !file)
        throw std::runtime_error("soc: give +firmware=FILE and a decoder image that can be read");
    Dram dram(uint64_t(64) << 20);
    Memory memory(dram, flash);
    Terminal terminal;
    auto top = std::make_unique<Vtop>();
    for (uint64_t cycle = 0; cycle < LONGEST; cycle++) {
        top->rst = cycle < 4;
        top->clk = 0;
        top->eval();
        dram.step(*top);
        memory.step(*top);
        terminal.sample(top->uart_tx || cycle < 8);
        bool ended = top->ended && cycle >= 8;
        int32_t status = top->status;
        top->clk = 1;
        top->eval();
        dram.drive(*top);
        top->mem_rdata = memory.data;
        if (ended) {
            if (status < 0)
                throw std::runtime_error("soc: the driver ended with error " + std::to_string(status));
            std::printf("cycles %" PRIu64 "\n", cycle);
            return 0;
        }
    }
    throw std::runtime_error("soc: the firmware does not end");
}

} // namespace

int main(int count, char **words)
{
    try {
        return run(count, words);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
