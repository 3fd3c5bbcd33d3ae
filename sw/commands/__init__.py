"""The commands of ``gemmule``, one file each."""
