"""A log, read the plain way: what other ways of reading it are compared with."""

import os
from collections.abc import Iterator
from pathlib import Path

from app_server.threads.files.writers import FileLog, whole_lines
from app_server.threads.log.faults import LogFaults, LogTooNew
from app_server.threads.log.reading import dropped_in, read_lines
from protocol.log.rollout import Record, is_newer, parse_record


def read_rollout(path: Path, faults: LogFaults | None = None) -> Iterator[Record]:
    """Read what counts of a log from its beginning: what reverts dropped is left out.

    A torn last line is dropped, lines that make no sense or are of a newer version are skipped;
    `faults` counts them.

    Raises:
        FileNotFoundError: there is no such log.
        LogTooNew: its first line is of a newer version.
        OSError: it cannot be read.
    """
    faults = LogFaults() if faults is None else faults
    dropped = dropped_in(FileLog(path))
    start = end = 0
    with path.open("rb") as file:
        for number, content, ended in read_lines(file):
            if not ended:
                faults.torn_bytes = os.fstat(file.fileno()).st_size - whole_lines(file.fileno())
                return
            start, end = end, file.tell() if content is None else end + len(content)
            record = None if content is None else parse_record(content)
            if record is not None:
                if not dropped.has(record.type, start):
                    yield record
            elif content is None or not is_newer(content):
                faults.add_damaged(number)
            elif number == 1:
                raise LogTooNew(path)
            else:
                faults.add_newer(number)
