"""Files that tests write, and what a process has open."""
