"""Commands about the RTL itself: simulated beside the model, tested by faults, exported, synthesised."""
