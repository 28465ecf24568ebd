"""Requests about threads that another node of the group owns.

Knows: which requests are the owner's, connections between nodes, what follows an owner's death.
Does not know: sockets, SQL, what a method does.
"""
