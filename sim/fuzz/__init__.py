"""Random legal programs, and what a run of them has covered."""
