"""Which hosts commands may reach, where their network is the server's proxy. No I/O.

Knows: hosts, patterns of domains, what settings say of them. Does not know: sockets, commands,
who is asked.
"""
