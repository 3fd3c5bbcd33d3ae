"""Networks in torch, what their heads are told, and checkpoints."""
