"""The machine around the code: files that appear whole, the cache folder, words about long work."""
