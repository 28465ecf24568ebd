"""Why something is not done to a file, where the system has no word for it."""


class PathRefused(Exception):
    """The request makes no sense for what is at the path; the text says why."""
