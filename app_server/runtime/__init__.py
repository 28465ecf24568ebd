"""What the process itself needs: clock, lazy imports, event loop, the limit of open files."""
