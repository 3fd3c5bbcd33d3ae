"""Text and tokens: tokenizers of checkpoints, chat templates, text as it comes."""
