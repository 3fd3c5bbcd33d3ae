"""Bundled models: quantised weights and the tokenizer that they share."""
