"""The life of a turn in its thread: its slot, its beginning, its run, its end, its status."""
