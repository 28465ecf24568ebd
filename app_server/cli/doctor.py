"""`app-server doctor`: from a command line to a report on a home."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict

from app_server.config.home import resolve_home
from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.launcher import SandboxLauncher
from app_server.host.sandbox.proof import prove
from app_server.threads.repair.doctor import Check, check_home, examine, rebuild_index

DESCRIPTION = """\
Check the threads of a home folder: its rights and space, every log, the locks, and whether the
index says what the logs say; and whether commands can be confined on this machine. Nothing is
changed, unless --rebuild is given. A server may be running meanwhile."""

EPILOG = """\
what is checked:
  home     the folders are there and can be written; there is space
  logs     every line can be read. A torn last line is what a crash left; damaged lines and lines of
           newer versions are skipped by the server and kept in the file
  locks    which running process holds which thread, and locks whose process has died
  index    it is whole, of this version, and its rows equal what the logs say
  codex    rollouts of Codex in the same home
  sandbox  which sandbox works here; a command in it tries to get out, in a temporary folder

examples:
  app-server doctor                      check the home that the server uses
  app-server doctor --home DIR --json    the same for programs, as one JSON object on stdout
  app-server doctor --rebuild            make the index from the logs, then check

The report goes to stdout, progress to stderr. The exit status is 0 if all is well, 1 if something
should be looked at, and 2 for a wrong call."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for findings, 2 for a wrong call."""
    options = make_parser().parse_args(arguments)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="%(message)s")
    home = resolve_home(options.home)
    checks: list[Check] = []
    if options.rebuild and home.is_dir():
        try:
            checks.append(rebuild_index(home, _report))
        except OSError as exc:
            failed = Check("rebuild", "error", f"{exc.filename or home}: {exc.strerror}")
            failed.todo = check_home(home).todo or "see the other checks"
            checks.append(failed)
    checks.extend(examine(home, _report))
    checks.append(check_sandbox(SandboxLauncher()))
    is_well = all(check.status == "ok" for check in checks)
    if options.json:
        report = {"home": str(home), "ok": is_well, "checks": [asdict(check) for check in checks]}
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(render(checks)))
    return 0 if is_well else 1


def check_sandbox(launcher: SandboxLauncher) -> Check:
    """Try to get out of the sandbox of this machine."""
    check = Check("sandbox")
    try:
        proof = prove(launcher)
    except (SandboxUnavailable, OSError) as exc:
        check.add("error", str(exc))
        check.todo = "until then commands run only in threads with full access"
        return check
    check.message = f"{proof.program}: {len(proof.refused)} ways out were tried and refused"
    for name in proof.escaped:
        check.add("error", f"a confined command can {name}")
        check.todo = "do not rely on the sandbox of this machine, and report this"
    if proof.limit is None:
        check.add("warning", "the processes of a command have no bound")
        check.todo = check.todo or "run the server as a user, or where it may make cgroups"
    else:
        check.message += f"; processes are bound by {proof.limit}"
    return check


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="app-server doctor",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--home", metavar="DIR", help="the home folder (default: the one that the server uses)"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="make the index from the logs first; what a running server holds is left to it",
    )
    return parser


def render(checks: Sequence[Check]) -> list[str]:
    """Write a report for people, a line each."""
    lines = []
    for check in checks:
        lines.append(f"{check.status:8}{check.name}: {check.message}".rstrip(": "))
        lines.extend(f"{'':8}- {detail}" for detail in check.details)
        if check.more:
            lines.append(f"{'':8}- and {check.more} more")
        if check.todo is not None:
            lines.append(f"{'':8}what to do: {check.todo}")
    return lines


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
