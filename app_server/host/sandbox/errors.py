"""Why a command is not started."""


class SandboxUnavailable(Exception):
    """No sandbox works here, or not for this; the text says what to install or to set."""
