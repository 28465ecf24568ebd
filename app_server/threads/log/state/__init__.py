"""State of a thread as the sum of the records of its log. No I/O."""
