"""Methods about this machine: files, searches, programs."""
