"""When: the exact cycles of every command."""
