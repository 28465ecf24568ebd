"""History of threads in the files of a home: its index, pages of it, and searches."""
