"""Caches whose rows have 4 bits of some numbers: attention over them, what chooses rows, and what packs them."""
