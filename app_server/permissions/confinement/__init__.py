"""Confinement of a thread: from its settings to the value that sandboxes and tools go by."""
