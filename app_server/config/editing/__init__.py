"""Writing to config.toml: one value at a time, with all that stands around it left alone."""
