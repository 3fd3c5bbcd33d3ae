"""What: the data effects of every command."""
