"""The tool `apply_patch`: how it is declared, and what is said of what it did."""
