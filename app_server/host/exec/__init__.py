"""Processes on other machines: the exec server, its client, and the protocol between them."""
