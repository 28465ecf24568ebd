"""Connections to an app-server from the client's side: its address, its token, calls.

Source: docs/listeners.md; docs/wire.md.
"""
