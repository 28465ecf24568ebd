"""Home directory of settings, threads and all other data of this user."""

import os
from pathlib import Path

from app_server.runtime.user_paths import expand_user

HOME_VARIABLE = "APP_SERVER_HOME"
"""Also given to what a server starts, where an option named its home."""


def resolve_home(option: str | None) -> Path:
    """Choose the home directory: the option, the environment, or the platform's state folder."""
    chosen = option or os.environ.get(HOME_VARIABLE) or os.environ.get("CODEX_HOME")
    return expand_user(chosen).absolute() if chosen else default_home()


def default_home() -> Path:
    """Return the platform's state folder for this user."""
    # Most servers are told their home.
    import platformdirs

    return platformdirs.user_state_path("app-server")
