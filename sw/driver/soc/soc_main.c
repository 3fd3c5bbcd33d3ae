/* SPDX-License-Identifier: Apache-2.0
 *
 * Firmware of the small system: loads the decoder image from flash into DRAM, decodes, and prints tokens and their text
 * on the UART.
 */
#include "gemmule_decoder.h"

#define DEVICE ((volatile uint32_t *)0x10000000u)
#define UART ((volatile uint32_t *)0x20000000u)
#define FLASH ((const uint8_t *)0x40000000u)
#define DRAM ((uint8_t *)0x80000000u)
#define MEIE 0x800u /* of the CSRs mie and mip */
#define MIE 0x8u    /* of mstatus */

enum { PROMPT_MOST = 256 };

volatile uint32_t interrupts; /* that the trap has seen */

/* What the compiler makes of assignments and loops; there is no library. */
void *memcpy(void *to, const void *from, __SIZE_TYPE__ count);
void *memset(void *to, int value, __SIZE_TYPE__ count);

void *memcpy(void *to, const void *from, __SIZE_TYPE__ count)
{
    uint8_t *at = to;
    const uint8_t *source = from;

    if ((((uintptr_t)to | (uintptr_t)from) & 3u) == 0)
        for (; count >= 4; count -= 4, at += 4, source += 4)
            *(volatile uint32_t *)(void *)at = *(const volatile uint32_t *)(const void *)source;
    for (; count; count--)
        *(volatile uint8_t *)at++ = *(const volatile uint8_t *)source++;
    return to;
}

void *memset(void *to, int value, __SIZE_TYPE__ count)
{
    volatile uint8_t *at = to;

    for (; count; count--)
        *at++ = (uint8_t)value;
    return to;
}

static uint32_t read_register(void *target, uint32_t offset)
{
    (void)target;
    return DEVICE[offset / 4u];
}

static void write_register(void *target, uint32_t offset, uint32_t value)
{
    (void)target;
    DEVICE[offset / 4u] = value;
}

static void wait_interrupt(void *target)
{
    uint32_t seen = interrupts;

    (void)target;
    __asm__ volatile("csrs mie, %0" ::"r"(MEIE));
    __asm__ volatile("csrs mstatus, %0" ::"r"(MIE));
    while (interrupts == seen)
        ;
}

static void put(void *target, uint64_t address, const void *bytes, uint32_t count)
{
    (void)target;
    memcpy(DRAM + (uint32_t)address, bytes, count);
}

static void get(void *target, uint64_t address, void *bytes, uint32_t count)
{
    (void)target;
    memcpy(bytes, DRAM + (uint32_t)address, count);
}

static void send(char character)
{
    while (UART[0])
        ;
    UART[0] = (uint8_t)character;
}

static void print(const char *text)
{
    while (*text)
        send(*text++);
}

static void print_number(uint64_t number)
{
    char digits[21];
    uint32_t used = 0;

    do {
        digits[used++] = (char)('0' + number % 10u);
        number /= 10u;
    } while (number);
    while (used)
        send(digits[--used]);
}

static void emit(void *target, uint32_t token)
{
    const char *text;
    uint32_t count = gemmule_decoder_text(target, token, &text), i;

    print("token ");
    print_number(token);
    print(": ");
    for (i = 0; i < count; i++)
        send(text[i]);
    print("\n");
}

int main(void);

int main(void)
{
    static uint32_t prompt[PROMPT_MOST], tokens[PROMPT_MOST];
    static const struct gemmule_port port = {0, read_register, write_register, wait_interrupt, put, get};
    static struct gemmule device;
    static struct gemmule_decoder decoder;
    uint32_t bytes, count;
    int status = gemmule_open(&device, &port, GEMMULE_CONFIGURATION);

    __builtin_memcpy(&bytes, FLASH + 8, 4); /* the image says its size */
    if (status == GEMMULE_OK)
        status = gemmule_decoder_open(&decoder, &device, FLASH, bytes);
    if (status == GEMMULE_OK) {
        gemmule_decoder_place(&decoder);
        print("placed\n");
        count = gemmule_decoder_prompt(&decoder, prompt, PROMPT_MOST);
        status = count > PROMPT_MOST ? (int)GEMMULE_NO_ROOM : gemmule_decoder_generate(
            &decoder, prompt, count, tokens, SOC_TOKENS, emit, &decoder);
        print("launches ");
        print_number(decoder.launches);
        print(", device cycles ");
        print_number(decoder.cycles);
        print(", interrupts ");
        print_number(interrupts);
        print("\n");
    }
    while (UART[0])
        ;
    UART[1] = (uint32_t)status;
    return 0;
}
