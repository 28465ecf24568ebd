"""Parts of the process itself: clock, lazy imports, event loop, the limit of open files."""
