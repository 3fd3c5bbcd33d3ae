"""The device for a host in C: a header, a bare-metal driver, decoders as images, a testbench that runs all of it."""
