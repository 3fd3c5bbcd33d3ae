/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding from a decoder image, whose layout sw/driver/decoder_image.py describes.
 */
#include "gemmule_decoder.h"

#include <stddef.h>

enum { /* words of the head */
    MAGIC, CONFIGURATION, SIZE, VOCAB, POSITIONS, CONSTANT, DIM, LOGITS, PLANE, ENDS, PROMPT, SEGMENTS, PROGRAMS, TEXTS,
    HEAD_WORDS
};
enum { ADDRESS_LOW, ADDRESS_HIGH, OFFSET, BYTES, SEGMENT_WORDS }; /* of a segment */
enum { /* words of a program; addresses take two */
    KIND, ROWS, CONTEXT, SHARE, COMMANDS, SILENT, TOKEN_PLANES, POSITION_PLANES, ANSWER_PLANES, RULES, AT_PROGRAM,
    AT_TOKENS = AT_PROGRAM + 2, AT_POSITIONS = AT_TOKENS + 2, AT_MASKS = AT_POSITIONS + 2, AT_ANSWERS = AT_MASKS + 2,
    PROGRAM_WORDS = AT_ANSWERS + 2
};
enum { RULE_KIND, NUMBER, VALUE, BY_ROW = VALUE + 2, BY_CACHED, BY_ANSWER, RULE_WORDS }; /* of a rule */
enum { OF_BASE, OF_LIMIT, OF_LENGTH };
enum { CHUNK = 64 }; /* bytes that are put together before they go to DRAM */

#define PROMPT_PROGRAM 1u
#define NOWHERE (~(uint64_t)0)

/* The image may come from anywhere: words are read byte by byte, in the image's order. */
static uint32_t word(const uint8_t *image, uint32_t offset, uint32_t number)
{
    const uint8_t *at = image + offset + 4u * number;

    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t wide(const uint8_t *image, uint32_t offset, uint32_t number)
{
    return word(image, offset, number) | (uint64_t)word(image, offset, number + 1u) << 32;
}

static uint32_t head(const struct gemmule_decoder *decoder, uint32_t number)
{
    return word(decoder->image, 0, number);
}

static uint32_t program_bytes(const uint8_t *image, uint32_t program)
{
    return 4u * (PROGRAM_WORDS + RULE_WORDS * word(image, program, RULES));
}

uint32_t gemmule_decoder_configuration(const void *image, uint32_t bytes)
{
    if (bytes < 4u * HEAD_WORDS || word(image, 0, MAGIC) != GEMMULE_DECODER_MAGIC || word(image, 0, SIZE) != bytes)
        return 0;
    return word(image, 0, CONFIGURATION);
}

int gemmule_decoder_open(struct gemmule_decoder *decoder, struct gemmule *device, const void *image, uint32_t bytes)
{
    uint32_t i;

    if (gemmule_decoder_configuration(image, bytes) == 0)
        return GEMMULE_BAD_IMAGE;
    decoder->device = device;
    decoder->image = image;
    decoder->ends = 4u * HEAD_WORDS;
    decoder->prompt = decoder->ends + 4u * head(decoder, ENDS);
    decoder->segments = decoder->prompt + 4u * head(decoder, PROMPT);
    decoder->programs = decoder->segments + 4u * SEGMENT_WORDS * head(decoder, SEGMENTS);
    decoder->words = decoder->programs;
    for (i = 0; i < head(decoder, PROGRAMS); i++)
        decoder->words += program_bytes(decoder->image, decoder->words);
    decoder->launches = 0;
    decoder->cycles = 0;
    gemmule_decoder_clear(decoder);
    return GEMMULE_OK;
}

void gemmule_decoder_place(struct gemmule_decoder *decoder)
{
    const struct gemmule_port *port = decoder->device->port;
    uint32_t i;

    for (i = 0; i < head(decoder, SEGMENTS); i++) {
        uint32_t segment = decoder->segments + 4u * SEGMENT_WORDS * i;

        port->put(port->target, wide(decoder->image, segment, ADDRESS_LOW),
                  decoder->image + word(decoder->image, segment, OFFSET), word(decoder->image, segment, BYTES));
    }
}

void gemmule_decoder_clear(struct gemmule_decoder *decoder)
{
    decoder->cached = head(decoder, CONSTANT);
}

/* -- what a launch takes */

/* Puts ids: 16 bits of each, and in a second plane their upper bits. `tokens` NULL: positions from `first` on. */
static void put_ids(const struct gemmule_decoder *decoder, uint64_t address, uint32_t planes, const uint32_t *tokens,
                    uint32_t first, uint32_t count)
{
    const struct gemmule_port *port = decoder->device->port;
    uint8_t chunk[CHUNK];
    uint32_t plane, i, used = 0;

    if (address == NOWHERE)
        return;
    for (plane = 0; plane < planes; plane++) {
        uint64_t at = address + (uint64_t)plane * head(decoder, PLANE);

        for (i = 0; i < count; i++) {
            uint32_t id = (tokens ? tokens[i] : first + i) >> 16u * plane;

            chunk[used++] = (uint8_t)id;
            chunk[used++] = (uint8_t)(id >> 8);
            if (used == CHUNK || i + 1u == count) {
                port->put(port->target, at, chunk, used);
                at += used;
                used = 0;
            }
        }
    }
}

/* Puts which new rows each row sees, a bit each: those up to itself, of a chain. Bits before the new rows stand for
 * cached ones, which it sees too. Heads that share keys have the same rows, one behind the other. */
static void put_masks(const struct gemmule_decoder *decoder, uint32_t program, uint32_t count)
{
    const struct gemmule_port *port = decoder->device->port;
    const uint8_t *image = decoder->image;
    uint32_t rows = word(image, program, ROWS), share = word(image, program, SHARE), bytes = head(decoder, DIM);
    uint32_t first = share == 1u ? 0u : share * rows - count, head_number, row, i;
    uint64_t at = wide(image, program, AT_MASKS);
    uint8_t chunk[CHUNK]; /* DIM is at most 64 */

    if (at == NOWHERE)
        return;
    for (head_number = 0; head_number < share; head_number++)
        for (row = 0; row < rows; row++, at += bytes) {
            uint32_t seen = row < count ? first + row + 1u : 0u; /* bits from the lowest on */

            for (i = 0; i < bytes; i++)
                chunk[i] = (uint8_t)(seen >= 8u * (i + 1u) ? 0xffu : seen > 8u * i ? (1u << (seen - 8u * i)) - 1u : 0u);
            port->put(port->target, at, chunk, bytes);
        }
}

static void set_registers(const struct gemmule_decoder *decoder, uint32_t program, uint32_t rows, uint32_t answers)
{
    const uint8_t *image = decoder->image;
    struct gemmule *device = decoder->device;
    uint32_t rules = word(image, program, RULES), rule = program + 4u * PROGRAM_WORDS, i;

    for (i = 0; i < rules; i++, rule += 4u * RULE_WORDS) {
        uint32_t number = word(image, rule, NUMBER);
        /* Factors are two's complement of 32 bits. */
        int64_t value = (int64_t)wide(image, rule, VALUE)
            + (int64_t)rows * (int32_t)word(image, rule, BY_ROW)
            + (int64_t)decoder->cached * (int32_t)word(image, rule, BY_CACHED)
            + (int64_t)answers * (int32_t)word(image, rule, BY_ANSWER);

        switch (word(image, rule, RULE_KIND)) {
        case OF_BASE:
            gemmule_set_base(device, number, (uint64_t)value);
            break;
        case OF_LIMIT:
            gemmule_set_limit(device, number, (uint64_t)value);
            break;
        default:
            gemmule_set_length(device, number, (uint32_t)value);
        }
    }
    gemmule_set_program(device, wide(image, program, AT_PROGRAM), word(image, program, answers ? COMMANDS : SILENT));
}

/* -- what it answers */

/* The greedy token: as the device chose it, or the highest of its logits, the lowest id of equal ones. */
static uint32_t answer(const struct gemmule_decoder *decoder, uint32_t program)
{
    const struct gemmule_port *port = decoder->device->port;
    uint64_t at = wide(decoder->image, program, AT_ANSWERS);
    uint32_t planes = word(decoder->image, program, ANSWER_PLANES), dim = head(decoder, DIM), plane, i, lane, best = 0;
    int32_t most = INT32_MIN;
    uint8_t raw[2 * CHUNK];

    if (!head(decoder, LOGITS)) {
        for (plane = 0; plane < planes; plane++) {
            port->get(port->target, at + (uint64_t)plane * head(decoder, PLANE), raw, 2);
            best |= ((uint32_t)raw[0] | (uint32_t)raw[1] << 8) << 16u * plane;
        }
        return best;
    }
    for (i = 0; i < head(decoder, VOCAB); i += dim, at += 2u * dim) { /* a group of logits: low bytes, high bytes */
        port->get(port->target, at, raw, 2u * dim);
        for (lane = 0; lane < dim && i + lane < head(decoder, VOCAB); lane++) {
            int32_t high = raw[dim + lane], logit = (int32_t)raw[lane] + 256 * (high < 128 ? high : high - 256);

            if (logit > most) {
                most = logit;
                best = i + lane;
            }
        }
    }
    return best;
}

static int launch(struct gemmule_decoder *decoder, uint32_t program, const uint32_t *tokens, uint32_t rows,
                  uint32_t answers)
{
    const uint8_t *image = decoder->image;
    int status;

    put_ids(decoder, wide(image, program, AT_TOKENS), word(image, program, TOKEN_PLANES), tokens, 0, rows);
    put_ids(decoder, wide(image, program, AT_POSITIONS), word(image, program, POSITION_PLANES), NULL, decoder->cached,
            rows);
    put_masks(decoder, program, rows);
    set_registers(decoder, program, rows, answers);
    status = gemmule_run(decoder->device);
    if (status == GEMMULE_OK) {
        decoder->cycles += gemmule_cycles(decoder->device);
        decoder->launches++;
        decoder->cached += rows;
    }
    return status;
}

/* -- passes */

/* The first program that answers so many rows behind the cached ones. */
static uint32_t chosen(const struct gemmule_decoder *decoder, uint32_t rows)
{
    uint32_t program = decoder->programs, last = program, i;

    for (i = 0; i < head(decoder, PROGRAMS); i++, program += program_bytes(decoder->image, program)) {
        if (word(decoder->image, program, KIND) == PROMPT_PROGRAM)
            continue;
        last = program;
        if (rows <= word(decoder->image, program, ROWS)
            && decoder->cached + rows <= word(decoder->image, program, CONTEXT))
            break;
    }
    return last;
}

/* The program for all other rows; the one for prompts, or 0 without one. */
static uint32_t general(const struct gemmule_decoder *decoder, uint32_t *for_prompts)
{
    uint32_t program = decoder->programs, last = program, i;

    *for_prompts = 0;
    for (i = 0; i < head(decoder, PROGRAMS); i++, program += program_bytes(decoder->image, program))
        if (word(decoder->image, program, KIND) == PROMPT_PROGRAM)
            *for_prompts = program;
        else
            last = program;
    return last;
}

int gemmule_decoder_pass(struct gemmule_decoder *decoder, const uint32_t *tokens, uint32_t count, uint32_t *next)
{
    uint32_t prompts, program = general(decoder, &prompts), most = word(decoder->image, program, ROWS), done = 0;
    uint32_t answered = next ? most : 0u; /* rows that the program for prompts does not take */
    int status = GEMMULE_OK;

    if (count == 0 || decoder->cached + count > head(decoder, POSITIONS))
        return GEMMULE_NO_ROOM;
    if (prompts && count > most) { /* in as few launches of nearly equal size as there can be */
        uint32_t early = count - answered, rows = word(decoder->image, prompts, ROWS);
        uint32_t pieces = (early + rows - 1u) / rows, i;

        for (i = 1; status == GEMMULE_OK && i <= pieces; i++) {
            uint32_t end = early * i / pieces;

            status = launch(decoder, prompts, tokens + done, end - done, 0);
            done = end;
        }
    }
    while (status == GEMMULE_OK && done < count) {
        uint32_t size = count - done < most ? count - done : most;

        program = chosen(decoder, size);
        status = launch(decoder, program, tokens + done, size, next && done + size == count);
        done += size;
    }
    if (status == GEMMULE_OK && next)
        *next = answer(decoder, program);
    return status;
}

static int ends_text(const struct gemmule_decoder *decoder, uint32_t token)
{
    uint32_t i;

    for (i = 0; i < head(decoder, ENDS); i++)
        if (word(decoder->image, decoder->ends, i) == token)
            return 1;
    return 0;
}

int gemmule_decoder_generate(struct gemmule_decoder *decoder, const uint32_t *prompt, uint32_t count, uint32_t *tokens,
                             uint32_t most, void (*emit)(void *target, uint32_t token), void *target)
{
    uint32_t made = 0;
    int status = count > 1u ? gemmule_decoder_pass(decoder, prompt, count - 1u, NULL) : GEMMULE_OK;

    if (count == 0)
        return GEMMULE_NO_ROOM;
    while (status == GEMMULE_OK && made < most) {
        status = gemmule_decoder_pass(decoder, made ? tokens + made - 1u : prompt + count - 1u, 1, &tokens[made]);
        if (status != GEMMULE_OK)
            return status;
        made++;
        if (emit)
            emit(target, tokens[made - 1u]);
        if (ends_text(decoder, tokens[made - 1u]))
            break;
    }
    return status == GEMMULE_OK ? (int)made : status;
}

/* -- texts */

uint32_t gemmule_decoder_prompt(const struct gemmule_decoder *decoder, uint32_t *tokens, uint32_t room)
{
    uint32_t count = head(decoder, PROMPT), i;

    for (i = 0; i < count && i < room; i++)
        tokens[i] = word(decoder->image, decoder->prompt, i);
    return count;
}

uint32_t gemmule_decoder_text(const struct gemmule_decoder *decoder, uint32_t token, const char **text)
{
    uint32_t vocab = head(decoder, VOCAB), begin;

    *text = "";
    if (!head(decoder, TEXTS) || token >= vocab)
        return 0;
    begin = word(decoder->image, decoder->words, token);
    *text = (const char *)decoder->image + decoder->words + 4u * (vocab + 1u) + begin;
    return word(decoder->image, decoder->words, token + 1u) - begin;
}
