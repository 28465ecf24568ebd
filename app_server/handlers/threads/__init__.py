"""thread/*: starting, finding, reading, changing and deleting threads."""
