"""Errors planted in the code of a room, to see which of them its tests find: `__main__.py`."""
