"""The workloads of ``gemmule run``, a file each."""
