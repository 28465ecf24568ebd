"""Which keys of a configuration are known, here and to Codex, and which nothing reads."""
