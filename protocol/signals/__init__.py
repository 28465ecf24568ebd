"""Signals on the wire: how they are delivered, and how a model reads one."""
