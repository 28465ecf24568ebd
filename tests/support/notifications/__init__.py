"""Receivers of notifications, and servers that send them."""
