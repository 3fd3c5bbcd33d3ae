"""Energy: which events a launch has, and a table that prices them."""
