"""Which apps and tools an account has: fetched, validated, named, and cached on disk."""
