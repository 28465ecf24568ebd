"""File operations of several folders: bounded reads, durable writes, locks, databases.

All of it blocks but what is `async`.
"""
