"""Where the repository of a new thread stands.

Source: docs/threads.md, "Git".
"""

from pathlib import Path

import anyio
import anyio.to_thread

from app_server.host.repository import read_repository
from protocol.threads import GitInfo

READ_S = 2.0
"""A folder on a disk that does not answer must not keep a thread from starting."""


async def git_info_of(cwd: str) -> GitInfo | None:
    """Read the state of the repository that a folder is in; None when nothing is known in 2 s."""
    with anyio.move_on_after(READ_S):
        state = await anyio.to_thread.run_sync(read_repository, Path(cwd), abandon_on_cancel=True)
        if state is not None:
            return GitInfo(sha=state.sha, branch=state.branch, origin_url=state.origin_url)
    return None
