"""Processes on other machines: an exec server, its client, and the protocol between them."""
