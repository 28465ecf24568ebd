"""What is wrong with a home and a machine, and what to do about it: a small file for each check.

Knows: the parts that a server is made of, each from outside. Does not know: a running server's
inside, the command line. A check says what it found as a `Check`; it changes nothing.
"""
