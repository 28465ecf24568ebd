"""Messages from outside: into a thread once, with a receipt that says how far each one has come.

Knows: the ledger, threads, sessions; the hub, for receipts alone.
Does not know: routers, how a receiver gets its messages.
"""
