"""Sandbox of Linux: bubblewrap, its mounts, and a filter of system calls."""
