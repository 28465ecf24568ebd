"""Files of this machine for clients: whole files, folders, trees, and what changes in them.

Knows: absolute paths, descriptors, bounds. Does not know: clients, methods, the model's sandbox.
"""
