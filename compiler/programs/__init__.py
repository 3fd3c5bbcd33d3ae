"""Programs: what each is compiled to, and its launches."""
