// The simulator's loop for cocotb, with the clock in it: what cocotb's own loop does, where each edge of the clock
// costs a chain of callbacks. It says so in the environment, which gemmule.sim.rtl.server reads.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_vpi.h"

static constexpr vluint64_t HALF = 5000, NEVER = ~vluint64_t{0};  // picoseconds
static vluint64_t now = 0;

double sc_time_stamp() { return static_cast<double>(now); }
extern "C" void vlog_startup_routines_bootstrap();

// Callbacks on values may change values.
static void settle() {
    while (VerilatedVpi::callValueCbs()) {}
}

static void ended(void*) { VerilatedVpi::callCbs(cbEndOfSimulation); }

int main(int argc, char** argv) {
    setenv("GEMMULE_CLOCK", "simulator", 1);
    Verilated::commandArgs(argc, argv);
    const std::unique_ptr<Vtop> top{new Vtop{""}};
    Verilated::fatalOnVpiError(false);
    vlog_startup_routines_bootstrap();
    Verilated::addExitCb(ended, nullptr);
    VerilatedVpi::callCbs(cbStartOfSimulation);
    settle();
    vluint64_t edge = HALF;
    while (!Verilated::gotFinish()) {
        do {
            do {
                top->eval_step();
                VerilatedVpi::clearEvalNeeded();
                VerilatedVpi::doInertialPuts();
                settle();
            } while (VerilatedVpi::evalNeeded());
            VerilatedVpi::callCbs(cbReadWriteSynch);
            VerilatedVpi::doInertialPuts();
            settle();
        } while (VerilatedVpi::evalNeeded());
        top->eval_end_step();
        VerilatedVpi::callCbs(cbReadOnlySynch);
        now = std::min(VerilatedVpi::cbNextDeadline(), edge);
        VerilatedVpi::callCbs(cbNextSimTime);
        VerilatedVpi::callTimedCbs();
        settle();
        if (now == edge) {
            top->clk = !top->clk;
            edge += HALF;
        }
    }
    top->final();
    ended(nullptr);
    return Verilated::threadContextp()->errorCount() > 0;
}
