"""Files of this machine for clients: whole files, folders, trees, and watches.

Knows: absolute paths, descriptors, bounds. Does not know: clients, methods, the model's sandbox.
"""
