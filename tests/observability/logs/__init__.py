"""The log of the process."""
