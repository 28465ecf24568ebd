"""Which tokens a listener accepts, and what a request shows of them.

Knows: tokens, headers, the file that a token is kept in. Does not know: sockets, settings, users.
"""
