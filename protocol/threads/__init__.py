"""Threads on the wire: themselves, their history, and what hangs on them."""
