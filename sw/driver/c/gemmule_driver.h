/* SPDX-License-Identifier: Apache-2.0
 *
 * Bare-metal driver of a Gemmule device: C99, no library, no memory of its own.
 *
 * The target fills in a port; the driver does the rest. One device takes one launch at a time; nothing here is
 * re-entrant. See docs/driver.md.
 */
#ifndef GEMMULE_DRIVER_H
#define GEMMULE_DRIVER_H

#include <stdint.h>

#include "gemmule.h"

/* How a target reaches the device. `target` is handed to every function. */
struct gemmule_port {
    void *target;
    uint32_t (*read)(void *target, uint32_t offset);              /* a register */
    void (*write)(void *target, uint32_t offset, uint32_t value); /* a register */
    /* Returns once the device's interrupt is high. Without one (NULL), the driver polls CSR_STATUS. */
    void (*wait)(void *target);
    /* Bytes to and from the DRAM that the device sees; caches are the target's concern. */
    void (*put)(void *target, uint64_t address, const void *bytes, uint32_t count);
    void (*get)(void *target, uint64_t address, void *bytes, uint32_t count);
};

enum gemmule_status {
    GEMMULE_OK = 0,
    GEMMULE_NO_DEVICE = -1,     /* CSR_IDENTITY reads something else: wrong address, or another version */
    GEMMULE_OTHER_DEVICE = -2,  /* made for another configuration */
    GEMMULE_BUSY = -3,          /* a launch is running */
    GEMMULE_FAULTED = -4,       /* the launch ended with a fault: gemmule_fault_of() */
    GEMMULE_BAD_IMAGE = -5,     /* no decoder image, or one that is cut off */
    GEMMULE_NO_ROOM = -6        /* more tokens than the context or the caller's array has room for */
};

struct gemmule {
    const struct gemmule_port *port;
    uint64_t bases[GEMMULE_BASES], limits[GEMMULE_BASES]; /* what the registers hold: */
    uint32_t lengths[GEMMULE_LENGTHS];                    /* equal values are not written again */
    uint64_t program;
    uint32_t commands;
};

struct gemmule_fault {
    uint32_t code;  /* GEMMULE_FAULT_* */
    uint32_t index; /* of the command, as they ran */
    uint32_t place; /* of the command in the program */
};

/* Checks that there is a device of this configuration (GEMMULE_CONFIGURATION), ends an interrupt, and clears all bases,
 * limits and lengths. A device that is BUSY is left alone: reset it, together with its bus. */
int gemmule_open(struct gemmule *device, const struct gemmule_port *port, uint32_t configuration);

/* Clears queues, counters, status and faults. While the device is busy, and after a fault of the watchdog, whatever
 * answers its AXI port must be in reset, too. */
void gemmule_reset(struct gemmule *device);

/* Registers of the next launch. */
void gemmule_set_base(struct gemmule *device, uint32_t number, uint64_t address);
void gemmule_set_limit(struct gemmule *device, uint32_t number, uint64_t bytes);
void gemmule_set_length(struct gemmule *device, uint32_t number, uint32_t value);
void gemmule_set_program(struct gemmule *device, uint64_t address, uint32_t commands);

/* Starts the program; gemmule_wait() returns when it has ended. The watchdog ends a launch whose bus hangs, so that
 * waiting has no limit of its own. */
int gemmule_start(struct gemmule *device);
int gemmule_done(const struct gemmule *device); /* not 0: the last launch has ended */
int gemmule_wait(struct gemmule *device);       /* GEMMULE_OK or GEMMULE_FAULTED */
int gemmule_run(struct gemmule *device);        /* start and wait */

/* Of the launch that has ended. */
void gemmule_fault_of(const struct gemmule *device, struct gemmule_fault *fault);
uint64_t gemmule_cycles(const struct gemmule *device);
uint64_t gemmule_counter(const struct gemmule *device, uint32_t number); /* GEMMULE_COUNTER_* */

/* Puts `bits` bits of a value into a command, 8 words that begin as zeros; places are GEMMULE_FIELD_*. */
void gemmule_put_field(uint32_t command[8], uint32_t bit, uint32_t bits, uint64_t value);

#endif
