"""Whether: the static check of a program for races and faults."""
