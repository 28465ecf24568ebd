"""Where the repository of a new thread stands.

Source: docs/threads.md, "Git".
"""

from functools import partial
from pathlib import Path

from app_server.host.folder_reads import FolderReads
from app_server.host.repository import read_repository
from protocol.threads.thread import GitInfo


class GitInfoReader:
    """Reads repositories beside the event loop."""

    def __init__(self) -> None:
        self._reads = FolderReads()

    async def read(self, cwd: str) -> GitInfo | None:
        """Say where the repository that a folder is in stands; None when nothing is known in 2 s.

        A read that hangs is left to itself.
        """
        state = await self._reads.read(partial(read_repository, Path(cwd)))
        if state is None:
            return None
        return GitInfo(sha=state.sha, branch=state.branch, origin_url=state.origin_url)
