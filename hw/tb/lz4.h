// The two functions of LZ4 that Verilator's FST writer calls, so that waveforms need no installed library.
//
// Block format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md. Greedy, one candidate for each hash of
// four bytes; the last match begins 12 bytes before the end or earlier and the last 5 bytes are literals.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

namespace gemmule_lz4 {

// A length of which 15 stand in the token.
inline char* more(char* out, int length) {
    for (length -= 15; length >= 255; length -= 255) *out++ = static_cast<char>(255);
    *out++ = static_cast<char>(length);
    return out;
}

// Literals and the match behind them; match 0: the end.
inline char* sequence(char* out, const char* literals, int count, int match, int offset) {
    const int extra = match - 4;
    char* const token = out++;
    *token = static_cast<char>((count < 15 ? count : 15) << 4 | (match ? (extra < 15 ? extra : 15) : 0));
    if (count >= 15) out = more(out, count);
    std::memcpy(out, literals, count);
    out += count;
    if (!match) return out;
    *out++ = static_cast<char>(offset);
    *out++ = static_cast<char>(offset >> 8);
    return extra >= 15 ? more(out, extra) : out;
}

}  // namespace gemmule_lz4

// Bytes written to `to`, which holds LZ4_compressBound(size) at least.
inline int LZ4_compress_default(const char* from, char* to, int size, int) {
    constexpr int BITS = 12, FAR = 65535, LAST_MATCH = 12, LITERALS = 5;
    std::vector<int> seen(1 << BITS, -1);
    char* out = to;
    int begin = 0;
    for (int at = 0; at + LAST_MATCH < size;) {
        std::uint32_t word;
        std::memcpy(&word, from + at, 4);
        int& entry = seen[word * 2654435761U >> (32 - BITS)];
        const int earlier = entry;
        entry = at;
        if (earlier < 0 || at - earlier > FAR || std::memcmp(from + earlier, from + at, 4) != 0) {
            ++at;
            continue;
        }
        int match = 4;
        while (at + match < size - LITERALS && from[earlier + match] == from[at + match]) ++match;
        out = gemmule_lz4::sequence(out, from + begin, at - begin, match, at - earlier);
        begin = at += match;
    }
    return static_cast<int>(gemmule_lz4::sequence(out, from + begin, size - begin, 0, 0) - to);
}
