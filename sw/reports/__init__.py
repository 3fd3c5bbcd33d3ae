"""Reports: in the terminal, as HTML pages, as figures and as traces."""
