"""Environments with threads in files: each server has those that its own clients added."""

from collections.abc import Sequence

from app_server.threads.environments import AddedEnvironment


class FileEnvironments:
    """A home shares no environments: they last as long as the server that has them, as in Codex."""

    async def put(self, environment: AddedEnvironment) -> None:
        """Share nothing."""

    async def all(self) -> Sequence[AddedEnvironment]:
        """Return an empty list."""
        return ()
