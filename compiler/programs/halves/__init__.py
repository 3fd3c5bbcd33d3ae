"""Programs of caches whose rows have 4 bits of some numbers."""
