/* SPDX-License-Identifier: Apache-2.0
 *
 * Bare-metal driver: registers, launches, faults and counters.
 */
#include "gemmule_driver.h"

static uint32_t read_register(const struct gemmule *device, uint32_t offset)
{
    return device->port->read(device->port->target, offset);
}

static void write_register(const struct gemmule *device, uint32_t offset, uint32_t value)
{
    device->port->write(device->port->target, offset, value);
}

static uint64_t read_wide(const struct gemmule *device, uint32_t offset)
{
    uint64_t low = read_register(device, offset);

    return low | (uint64_t)read_register(device, offset + 4u) << 32;
}

/* Writes what differs from `held` of a register of two words. */
static void write_wide(const struct gemmule *device, uint32_t offset, uint64_t *held, uint64_t value)
{
    if ((uint32_t)*held != (uint32_t)value)
        write_register(device, offset, (uint32_t)value);
    if (*held >> 32 != value >> 32)
        write_register(device, offset + 4u, (uint32_t)(value >> 32));
    *held = value;
}

int gemmule_open(struct gemmule *device, const struct gemmule_port *port, uint32_t configuration)
{
    uint32_t i;

    device->port = port;
    if (read_register(device, GEMMULE_CSR_IDENTITY) != GEMMULE_IDENTITY)
        return GEMMULE_NO_DEVICE;
    if (read_register(device, GEMMULE_CSR_CONFIGURATION) != configuration)
        return GEMMULE_OTHER_DEVICE;
    if (read_register(device, GEMMULE_CSR_STATUS) & GEMMULE_STATUS_BUSY)
        return GEMMULE_BUSY;
    write_register(device, GEMMULE_CSR_IRQ_CLEAR, 1u);
    for (i = 0; i < GEMMULE_BASES; i++) { /* all bits differ from what is held, so that every word is written */
        device->bases[i] = device->limits[i] = ~(uint64_t)0;
        write_wide(device, GEMMULE_CSR_BASE(i), &device->bases[i], 0);
        write_wide(device, GEMMULE_CSR_LIMIT(i), &device->limits[i], 0);
    }
    for (i = 0; i < GEMMULE_LENGTHS; i++) {
        device->lengths[i] = 1u;
        gemmule_set_length(device, i, 0);
    }
    device->program = ~(uint64_t)0;
    device->commands = ~0u;
    gemmule_set_program(device, 0, 0);
    return GEMMULE_OK;
}

void gemmule_reset(struct gemmule *device)
{
    write_register(device, GEMMULE_CSR_CONTROL, GEMMULE_CONTROL_RESET);
}

void gemmule_set_base(struct gemmule *device, uint32_t number, uint64_t address)
{
    write_wide(device, GEMMULE_CSR_BASE(number), &device->bases[number], address);
}

void gemmule_set_limit(struct gemmule *device, uint32_t number, uint64_t bytes)
{
    write_wide(device, GEMMULE_CSR_LIMIT(number), &device->limits[number], bytes);
}

void gemmule_set_length(struct gemmule *device, uint32_t number, uint32_t value)
{
    if (device->lengths[number] != value)
        write_register(device, GEMMULE_CSR_LENGTH(number), value);
    device->lengths[number] = value;
}

void gemmule_set_program(struct gemmule *device, uint64_t address, uint32_t commands)
{
    write_wide(device, GEMMULE_CSR_PROGRAM_LO, &device->program, address);
    if (device->commands != commands)
        write_register(device, GEMMULE_CSR_PROGRAM_COMMANDS, commands);
    device->commands = commands;
}

int gemmule_start(struct gemmule *device)
{
    if (read_register(device, GEMMULE_CSR_STATUS) & GEMMULE_STATUS_BUSY)
        return GEMMULE_BUSY;
    write_register(device, GEMMULE_CSR_CONTROL, GEMMULE_CONTROL_START);
    return GEMMULE_OK;
}

int gemmule_done(const struct gemmule *device)
{
    return (read_register(device, GEMMULE_CSR_STATUS) & GEMMULE_STATUS_DONE) != 0;
}

int gemmule_wait(struct gemmule *device)
{
    struct gemmule_fault fault;

    if (device->port->wait)
        device->port->wait(device->port->target);
    while (!gemmule_done(device))
        ;
    write_register(device, GEMMULE_CSR_IRQ_CLEAR, 1u);
    gemmule_fault_of(device, &fault);
    return fault.code == GEMMULE_FAULT_NONE ? GEMMULE_OK : GEMMULE_FAULTED;
}

int gemmule_run(struct gemmule *device)
{
    int status = gemmule_start(device);

    return status == GEMMULE_OK ? gemmule_wait(device) : status;
}

void gemmule_fault_of(const struct gemmule *device, struct gemmule_fault *fault)
{
    uint32_t status = read_register(device, GEMMULE_CSR_STATUS);

    fault->code = status >> GEMMULE_STATUS_FAULT_SHIFT & GEMMULE_STATUS_FAULT_MASK;
    fault->index = fault->place = 0;
    if (fault->code != GEMMULE_FAULT_NONE) {
        fault->index = read_register(device, GEMMULE_CSR_FAULT_INDEX);
        fault->place = read_register(device, GEMMULE_CSR_FAULT_PLACE);
    }
}

uint64_t gemmule_cycles(const struct gemmule *device)
{
    return read_wide(device, GEMMULE_CSR_CYCLES);
}

uint64_t gemmule_counter(const struct gemmule *device, uint32_t number)
{
    return read_wide(device, GEMMULE_CSR_COUNTER(number));
}

void gemmule_put_field(uint32_t command[8], uint32_t bit, uint32_t bits, uint64_t value)
{
    uint32_t i;

    for (i = 0; i < bits; i++) {
        uint32_t at = bit + i, mask = 1u << (at & 31u);

        if (value >> i & 1u)
            command[at >> 5] |= mask;
        else
            command[at >> 5] &= ~mask;
    }
}
