"""Homes with recorded rollouts of Codex."""

import shutil
from pathlib import Path
from typing import Any

from app_server.threads.files.codex.rollouts import find_files, segments_of
from app_server.threads.files.codex.threads import records_of
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.state import ThreadState, replay
from tests.support.harness import WireClient
from tests.support.threads.codex_rollouts import (
    RECORDED,
)

CONDENSED = "01a1fd6d-4b0d-7fb2-894a-e6d0277ca820"
FORK = "01a1fd6d-4c4a-7ed0-b02f-731689a37f7b"
FAILED = "01a1fd6d-4cde-7ee3-b147-b1be3d5c0fd3"
INTERRUPTED = "01a1fd6d-4d3e-78f3-962d-abf64551f701"


def codex_home(tmp_path: Path) -> Path:
    """Make a home in which Codex has worked."""
    shutil.copytree(RECORDED, tmp_path / "home")
    return tmp_path / "home"


def read(home: Path, thread_id: str, faults: LogFaults | None = None) -> ThreadState:
    files = find_files(home).files
    segments = segments_of(files[thread_id], files)
    return replay(records_of(segments, faults or LogFaults()))


async def listed(client: WireClient, **params: Any) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = (await client.call("thread/list", params))["data"]
    return data
