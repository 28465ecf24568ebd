"""Conversations about tools, held with this server and with Codex, and compared line by line."""
