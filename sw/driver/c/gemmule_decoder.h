/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding on a Gemmule device from a decoder image, as `gemmule driver` writes it: programs, weights, and how a
 * launch's registers follow from its rows. C99, no library; the image is read in place.
 */
#ifndef GEMMULE_DECODER_H
#define GEMMULE_DECODER_H

#include "gemmule_driver.h"

#define GEMMULE_DECODER_MAGIC 0x31444d47u /* "GMD1" */

struct gemmule_decoder {
    struct gemmule *device;
    const uint8_t *image;
    /* Byte offsets of the image's parts. */
    uint32_t programs, segments, ends, prompt, words;
    uint32_t cached;   /* rows in the cache, constant ones included */
    uint32_t launches; /* so far, and their device cycles */
    uint64_t cycles;
};

/* Takes an image of so many bytes, which stay where they are. */
int gemmule_decoder_open(struct gemmule_decoder *decoder, struct gemmule *device, const void *image, uint32_t bytes);

/* The image's device; for gemmule_open(). 0: no decoder image. */
uint32_t gemmule_decoder_configuration(const void *image, uint32_t bytes);

/* Puts programs and weights into DRAM; once, before the first pass. */
void gemmule_decoder_place(struct gemmule_decoder *decoder);

/* An empty cache again. */
void gemmule_decoder_clear(struct gemmule_decoder *decoder);

/* Passes tokens behind the cached ones, in as few launches as there can be, and tells the greedy token behind the last
 * of them; with NULL none, and the launches skip the head. GEMMULE_NO_ROOM: there are none, or they exceed the
 * context. */
int gemmule_decoder_pass(struct gemmule_decoder *decoder, const uint32_t *tokens, uint32_t count, uint32_t *next);

/* Generates up to `most` tokens behind a prompt of one token or more, up to and with one that ends a text; `emit` (or
 * NULL) sees each. All of the prompt but its last token is passed first, without an answer. Returns how many, or an
 * error (below 0). `tokens` has room for `most`. */
int gemmule_decoder_generate(struct gemmule_decoder *decoder, const uint32_t *prompt, uint32_t count, uint32_t *tokens,
                             uint32_t most, void (*emit)(void *target, uint32_t token), void *target);

/* The image's own prompt: how many tokens it has; as many of them as there is room for are copied. */
uint32_t gemmule_decoder_prompt(const struct gemmule_decoder *decoder, uint32_t *tokens, uint32_t room);

/* The bytes of a token's text (no end mark), and how many; 0 where the image has no texts, or for special tokens. */
uint32_t gemmule_decoder_text(const struct gemmule_decoder *decoder, uint32_t token, const char **text);

#endif
