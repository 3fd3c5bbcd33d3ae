"""Model files: written, read and checked."""
