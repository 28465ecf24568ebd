"""Why a patch is not applied. The texts are for the model: they name the file and the rule."""

from collections.abc import Sequence


class PatchFailed(Exception):
    """The patch is not applied."""


class BadPatch(PatchFailed):
    """It is not written as the grammar wants it."""


class EmptyPatch(PatchFailed):
    """It changes no file."""


class NotApplicable(PatchFailed):
    """It does not fit what is on the disk; nothing was changed."""


class NotWritten(PatchFailed):
    """The disk refused, or a file had changed meanwhile."""

    def __init__(self, message: str, changed: Sequence[int] = ()) -> None:
        """Say what failed; `changed` are the numbers of the changes that had been made by then."""
        super().__init__(message)
        self.changed = tuple(changed)
