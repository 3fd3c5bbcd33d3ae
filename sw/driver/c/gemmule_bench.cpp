// SPDX-License-Identifier: Apache-2.0
//
// Testbench: the driver in C on this host, its registers the AXI4-Lite port of a verilated device, its DRAM behind the
// device's AXI4 port. Decodes the prompt of a decoder image and tells tokens, cycles and counters as JSON.
//
// usage: gemmule_bench IMAGE [--wait irq|poll] [--tokens N] [--text]
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include <verilated.h>

#include "Vtop.h"
#include "gemmule_dram.hpp"

extern "C" {
#include "gemmule_decoder.h"
}

namespace {

constexpr uint64_t PATIENCE = 1000;              // cycles within which the registers must answer
constexpr uint64_t LONGEST = 1000u * 1000 * 1000; // cycles that a launch may take

class Bench {
public:
    explicit Bench(uint64_t dram_bytes) : dram(dram_bytes)
    {
        top->s_axil_awvalid = top->s_axil_wvalid = top->s_axil_arvalid = 0;
        top->s_axil_bready = top->s_axil_rready = 1;
        top->s_axil_wstrb = 15;
        top->rst = 1;
        dram.drive(*top);
        for (int i = 0; i < 4; i++)
            cycle();
        top->rst = 0;
        cycle();
    }

    ~Bench() { top->final(); }

    void cycle()
    {
        settle();
        dram.step(*top);
        top->clk = 1;
        top->eval();
        dram.drive(*top);
        cycles++;
        settled = false;
    }

    uint32_t read(uint32_t offset)
    {
        uint32_t data = 0;
        top->s_axil_araddr = offset;
        top->s_axil_arvalid = 1;
        access([&] {
            bool asked = top->s_axil_arvalid && top->s_axil_arready, there = top->s_axil_rvalid;
            data = top->s_axil_rdata;
            cycle();
            if (asked)
                top->s_axil_arvalid = 0;
            return there;
        });
        return data;
    }

    void write(uint32_t offset, uint32_t value)
    {
        top->s_axil_awaddr = offset;
        top->s_axil_wdata = value;
        top->s_axil_awvalid = top->s_axil_wvalid = 1;
        access([&] {
            bool address = top->s_axil_awvalid && top->s_axil_awready, data = top->s_axil_wvalid && top->s_axil_wready;
            bool done = top->s_axil_bvalid;
            cycle();
            if (address)
                top->s_axil_awvalid = 0;
            if (data)
                top->s_axil_wvalid = 0;
            return done;
        });
    }

    void wait()
    {
        for (uint64_t i = 0; i < LONGEST; i++) {
            settle();
            if (top->irq)
                return;
            cycle();
        }
        throw std::runtime_error("bench: no interrupt");
    }

    std::unique_ptr<Vtop> top = std::make_unique<Vtop>();
    Dram dram;
    uint64_t cycles = 0;

private:
    // Inputs change behind a rising edge; outputs that depend on them are right once the clock is low.
    void settle()
    {
        if (!settled) {
            top->clk = 0;
            top->eval();
            settled = true;
        }
    }

    template <class Step> void access(Step step)
    {
        settled = false;
        for (uint64_t i = 0; i < PATIENCE; i++) {
            settle();
            if (step())
                return;
        }
        throw std::runtime_error("bench: no answer of the registers");
    }

    bool settled = false;
};

Bench &bench(void *target) { return *static_cast<Bench *>(target); }

struct Options {
    std::string image;
    bool irq = true, text = false;
    uint32_t tokens = 8;
};

Options parse(int count, char **words)
{
    Options options;
    for (int i = 1; i < count; i++) {
        std::string word = words[i], next = i + 1 < count ? words[i + 1] : "";
        if (word == "--text")
            options.text = true;
        else if (word == "--wait" && (next == "irq" || next == "poll"))
            options.irq = next == "irq", i++;
        else if (word == "--tokens" && !next.empty() && next.find_first_not_of("0123456789") == std::string::npos)
            options.tokens = std::stoul(next), i++;
        else if (word[0] != '-' && options.image.empty())
            options.image = word;
        else
            throw std::runtime_error("bench: " + word + " must be IMAGE, --wait irq|poll, --tokens N or --text");
    }
    if (options.image.empty())
        throw std::runtime_error("bench: name a decoder image, as `gemmule driver` writes it");
    return options;
}

const char *meaning(int status)
{
    switch (status) {
    case GEMMULE_NO_DEVICE: return "there is no device, or one with other registers";
    case GEMMULE_OTHER_DEVICE: return "the image is for another configuration";
    case GEMMULE_BUSY: return "the device is busy";
    case GEMMULE_FAULTED: return "the launch ended with a fault";
    case GEMMULE_BAD_IMAGE: return "the file is no decoder image";
    default: return "the tokens exceed the context";
    }
}

void check(const gemmule &device, int status)
{
    static const char *const faults[] = GEMMULE_FAULT_NAMES;
    if (status >= 0)
        return;
    std::string text = std::string("bench: ") + meaning(status);
    if (status == GEMMULE_FAULTED) {
        gemmule_fault fault;
        gemmule_fault_of(&device, &fault);
        text += std::string(": ") + faults[fault.code] + " at command " + std::to_string(fault.index) + " (place "
            + std::to_string(fault.place) + ")";
    }
    throw std::runtime_error(text);
}

struct Printed {
    const gemmule_decoder *decoder;
    bool wanted;
};

void emit(void *target, uint32_t token)
{
    auto *printed = static_cast<Printed *>(target);
    const char *text;
    uint32_t bytes = gemmule_decoder_text(printed->decoder, token, &text);
    if (printed->wanted) {
        std::fwrite(text, 1, bytes, stderr);
        std::fflush(stderr);
    }
}

void tell(const gemmule &device, const gemmule_decoder &decoder, const std::vector<uint32_t> &tokens, uint64_t cycles)
{
    static const char *const names[] = GEMMULE_COUNTER_NAMES;
    std::printf("{\"tokens\": [");
    for (size_t i = 0; i < tokens.size(); i++)
        std::printf("%s%u", i ? ", " : "", unsigned(tokens[i]));
    std::printf("],\n \"launches\": %u, \"device_cycles\": %" PRIu64 ", \"cycles\": %" PRIu64 ",\n",
                unsigned(decoder.launches), decoder.cycles, cycles);
    std::printf(" \"last_launch\": {\"cycles\": %" PRIu64, gemmule_cycles(&device));
    for (uint32_t i = 0; i < GEMMULE_COUNTERS; i++)
        std::printf(", \"%s\": %" PRIu64, names[i], gemmule_counter(&device, i));
    std::printf("}}\n");
}

int run(int count, char **words)
{
    Options options = parse(count, words);
    std::ifstream file(options.image, std::ios::binary);
    std::vector<char> image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file)
        throw std::runtime_error("bench: " + options.image + " cannot be read");
    uint32_t bytes = image.size();
    Bench here(uint64_t(64) << 20);
    const gemmule_port port = {
        &here,
        [](void *target, uint32_t offset) { return bench(target).read(offset); },
        [](void *target, uint32_t offset, uint32_t value) { bench(target).write(offset, value); },
        options.irq ? [](void *target) { bench(target).wait(); } : static_cast<void (*)(void *)>(nullptr),
        [](void *target, uint64_t at, const void *from, uint32_t size) { bench(target).dram.put(at, from, size); },
        [](void *target, uint64_t at, void *to, uint32_t size) { bench(target).dram.get(at, to, size); },
    };
    gemmule device;
    gemmule_decoder decoder;
    check(device, gemmule_open(&device, &port, GEMMULE_CONFIGURATION));
    check(device, gemmule_decoder_open(&decoder, &device, image.data(), bytes));
    if (gemmule_decoder_configuration(image.data(), bytes) != GEMMULE_CONFIGURATION)
        check(device, GEMMULE_OTHER_DEVICE);
    gemmule_decoder_place(&decoder);
    std::vector<uint32_t> prompt(gemmule_decoder_prompt(&decoder, nullptr, 0)), tokens(options.tokens);
    gemmule_decoder_prompt(&decoder, prompt.data(), prompt.size());
    Printed printed = {&decoder, options.text};
    int made = gemmule_decoder_generate(&decoder, prompt.data(), prompt.size(), tokens.data(), tokens.size(), emit,
                                        &printed);
    check(device, made);
    tokens.resize(made);
    tell(device, decoder, tokens, here.cycles);
    return 0;
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
