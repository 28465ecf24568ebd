"""Start of a server: reads, checks and loads that happen once."""
