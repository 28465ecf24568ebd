"""The proxy of commands."""
