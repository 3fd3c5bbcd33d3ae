"""Programs of rows that choose pages of a cache, and of a last row that chooses chunks."""
