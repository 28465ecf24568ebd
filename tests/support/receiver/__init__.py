"""Routers, app-servers and agents around a receiver, and signals."""
