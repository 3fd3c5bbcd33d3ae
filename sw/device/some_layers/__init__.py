"""Values of passes through some of the layers, by the interpreter."""
