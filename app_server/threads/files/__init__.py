"""The file of a log: where it is, who may write it, how it is written and read. Blocks."""
