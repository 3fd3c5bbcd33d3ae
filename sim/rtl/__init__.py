"""The generated Verilog as a device, and its comparison with the model."""
