"""What is read, checked and loaded once, when a server starts."""
