"""The pages for readers, held against the code."""
