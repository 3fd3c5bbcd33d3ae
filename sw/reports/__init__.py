"""Reports: in the terminal, as a page with figures, as a trace."""
