"""The sandbox of Linux: bubblewrap, what is mounted in it, a filter of system calls."""
