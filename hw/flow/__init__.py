"""From the RTL to Verilog, lint, synthesis, place and route."""
