"""What callers of this package may catch."""


class AppsUnavailable(Exception):
    """Apps, or something about them, cannot be had now; the text says why and holds no secret."""
