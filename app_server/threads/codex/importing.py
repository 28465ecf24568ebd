"""A thread of Codex becomes a log of ours. Everything here blocks.

The log is written beside its place and renamed into it, so that it is there as a whole or not at
all. The rollout of Codex is only read.
"""

from pathlib import Path

from app_server.runtime.files.disk import atomic_write, make_folder
from app_server.threads.codex.threads import CodexSource, records_to_import
from app_server.threads.log.faults import LogFaults
from protocol.log.rollout import render_record


def import_thread(source: CodexSource, path: Path, faults: LogFaults) -> None:
    """Write a thread of Codex to `path`; when this returns it is on disk.

    The caller holds the thread's lock. `faults` counts what could not be read.

    Raises:
        OSError: the source cannot be read, or the disk refused; then nothing is left behind.
    """
    make_folder(path.parent)
    with atomic_write(path, path.with_suffix(".importing")) as file:
        for record in records_to_import(source, faults):
            file.write(render_record(record))
