"""config.toml and requirements.toml: values, files, edits, and the settings in force."""
