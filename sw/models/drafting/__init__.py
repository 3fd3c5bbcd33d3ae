"""What drafts with the target itself or a cut head: the int4 copy, layers to skip, frequent tokens; heads of exits."""
