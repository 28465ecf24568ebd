"""Notifications to programs, webhooks and desktops of what threads wait for, and how they end.

Knows: the events that the hub shows an observer, names and folders of threads, the outbox.
Does not know: connections, how a turn runs, what a model said beyond an event.
"""
