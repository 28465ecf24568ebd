"""Whether the log of projects and sections can be read and added to, and what of it is left out."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from app_server.cli.checks.machine import Machine
from app_server.runtime.files.disk import lock_within
from app_server.runtime.files.opening import open_regular
from app_server.threads.filing import LOCK_WAIT_S, FilingState, LogLocked
from app_server.threads.log.faults import LogFaults
from app_server.threads.repair import Check
from protocol.log.filing import FilingRecord, is_newer_filing, parse_filing_record


def check_filing(machine: Machine) -> Check:
    """Read every line of the log, as a server does, and leave the file as it is."""
    check, path = Check("filing", message="projects and sections"), machine.home / "filing.jsonl"
    try:
        lines = _read(path)
    except FileNotFoundError:
        check.message = "there are no projects and sections yet"
    except LogLocked:
        check.add("error", f"another process has held the lock of {path} for {LOCK_WAIT_S:.0f} s")
        check.advise("end the process that hangs; requests about projects and sections are refused")
    except OSError as exc:
        _refuse(check, path, exc.strerror)
    else:
        if lines is None:
            _refuse(check, path, "it is no file")
        else:
            _check_lines(lines, path, check)
    return check


def _read(path: Path) -> list[bytes] | None:
    file = open_regular(path)
    if file is None:
        return None
    with file:
        # While a server adds to it, the last line is not whole yet.
        if not lock_within(file.fileno(), LOCK_WAIT_S, fcntl.LOCK_SH):
            raise LogLocked
        return file.readlines()


def _refuse(check: Check, path: Path, reason: str | None) -> None:
    check.add("error", f"{path} cannot be read: {reason}")
    check.advise(
        f"let {path} be a file that this user can read and write; threads are there meanwhile, and "
        "requests about projects and sections are refused"
    )


def _check_lines(lines: Sequence[bytes], path: Path, check: Check) -> None:
    faults = LogFaults()
    state = FilingState().after(_records(lines, faults))
    check.message = f"{len(state.projects)} projects, {len(state.sections)} sections"
    if not os.access(path, os.W_OK):
        check.add("error", f"{path} cannot be written")
        check.advise(f"give this user the right to write to {path}")
    for text in faults.texts(path):
        check.add("warning", text)
    if faults.torn_bytes:
        check.advise("nothing: the next change cuts the torn line off")
    if faults.damaged:
        check.advise(
            "look whether a project or a section is missing: put back a copy of the file, or make "
            "it again"
        )
    if faults.newer:
        check.advise("run the newer version that shares this home: it knows what its lines say")


def _records(lines: Sequence[bytes], faults: LogFaults) -> Iterator[FilingRecord]:
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            faults.torn_bytes = len(line)
        elif (record := parse_filing_record(line)) is not None:
            yield record
        elif is_newer_filing(line):
            faults.add_newer(number)
        else:
            faults.add_damaged(number)
