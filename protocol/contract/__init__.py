"""The table of all messages: where the types of each are, who may use it, what is not served.

Types are named here, not imported: a row loads its own when it is first used.
"""
