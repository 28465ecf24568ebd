"""Clients of others, whole, against this server; commands of their own, as they need npm or tmux.

See docs/clients.md.
"""
