"""What several commands share: options, texts, output."""
