"""Conversations with clients: envelopes in, one answer each, notifications out, in order.

Knows: connections, ids, order, bounds, who is subscribed to which thread.
Does not know: sockets, what a thread or a turn is, what any method does.
"""
