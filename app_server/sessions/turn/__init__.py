"""The life of a turn in its thread: its beginning, its run, its end."""
