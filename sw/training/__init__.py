"""Training recipe of the two bundled language models (only `model` and `train` need torch)."""
