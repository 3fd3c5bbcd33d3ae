"""Answers of a pass: logits, greedy tokens, the largest logits, exponent sums."""
