"""What more than one folder does with files: reads of bounds, durable writes, locks, databases.

All of it blocks but what is `async`.
"""
