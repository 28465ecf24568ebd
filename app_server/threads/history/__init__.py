"""The history of threads in pages, and searching it."""
