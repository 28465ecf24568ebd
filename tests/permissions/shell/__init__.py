"""Shell scripts, read with a grammar."""
