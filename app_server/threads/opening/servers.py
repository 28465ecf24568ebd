"""The list of running servers, for commands that need nothing else of a store."""

from pathlib import Path

from app_server.threads.files.servers import FileServers
from app_server.threads.servers import RunningServers


def running_servers(home: Path) -> RunningServers:
    """Return the list of the servers that run with a home."""
    return FileServers(home)
