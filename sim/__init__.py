"""The exact model: what every command does, and when; the generated Verilog beside it."""
