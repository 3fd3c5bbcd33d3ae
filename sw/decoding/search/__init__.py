"""Search: several continuations of one prompt as rows of the same launches."""
