"""What can go wrong with writing settings down."""


class NotRecorded(Exception):
    """Something that should last could not be written down; the text says why."""
