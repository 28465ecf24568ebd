"""Which user of this machine is at the other end of a connection, as Linux tells it.

Knows: how the system is asked. Does not know: listeners, HTTP, settings.
"""
