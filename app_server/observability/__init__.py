"""The log of the process, counts of use, and traces and metrics for a collector."""
