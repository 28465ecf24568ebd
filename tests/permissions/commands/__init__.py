"""Commands that are known."""
