"""Software on top of the device: runtime, decoding methods, reports, command line."""
