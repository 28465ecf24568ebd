"""Checks of `app-server doctor`: the home, the machine, and the services it uses.

Knows: the parts that a server is made of, each from outside. Does not know: a running server's
inside, the command line. A check says what it found as a `Check`; it changes nothing.
"""
