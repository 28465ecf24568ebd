"""What the records of a log add up to: the state of its thread, and the parts of it. No I/O."""
