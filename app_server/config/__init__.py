"""config.toml, profiles and requirements.toml: values, and the settings in force."""
