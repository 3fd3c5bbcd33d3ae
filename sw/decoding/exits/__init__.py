"""Early exit: tokens that do not run all layers. Lossy by definition, and checked against plain readings."""
