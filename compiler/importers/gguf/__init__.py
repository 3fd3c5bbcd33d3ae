"""GGUF files: read, checked, named as Hugging Face names them."""
