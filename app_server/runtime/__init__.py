"""What the process itself needs: clock, lazy imports, open files, files for secrets."""
