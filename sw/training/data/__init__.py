"""What training reads: texts, tokens, windows, requests."""
