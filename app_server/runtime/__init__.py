"""What the process itself needs: clock, lazy imports, the event loop, open files, secret files."""
