"""Files of rules as clients see them."""

from app_server.permissions.rules import BrokenRules
from protocol.server.lifecycle import ConfigWarningNotification, TextPosition, TextRange


def rules_warning(broken: BrokenRules) -> ConfigWarningNotification:
    """Say that a file is broken, and where."""
    place = None if broken.line is None else TextPosition(line=broken.line, column=1)
    return ConfigWarningNotification(
        summary="A file of rules is broken; no rule of it holds.",
        details=str(broken),
        path=str(broken.path),
        range=None if place is None else TextRange(start=place, end=place),
    )
