"""Reports as files: a page with figures, a trace."""
