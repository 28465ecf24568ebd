"""The exceptions that this package raises to its callers."""


class AppsUnavailable(Exception):
    """Apps, or something about them, cannot be had now; the text says why and holds no secret."""
