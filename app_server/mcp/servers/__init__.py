"""The servers of one thread: each of them, all together, their starts, calls and reports."""
