"""Where settings, threads and everything else of this user are kept."""

import os
from pathlib import Path

from app_server.runtime.user_paths import expand_user


def resolve_home(option: str | None) -> Path:
    """Choose the home directory: the option, the environment, or the platform's state folder."""
    chosen = option or os.environ.get("APP_SERVER_HOME") or os.environ.get("CODEX_HOME")
    return expand_user(chosen).absolute() if chosen else default_home()


def default_home() -> Path:
    """Return the platform's state folder for this user."""
    # Most servers are told their home.
    import platformdirs

    return platformdirs.user_state_path("app-server")
