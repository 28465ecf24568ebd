"""`app-server doctor`: from a command line to a report on a home and a machine."""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from app_server import VERSION
from app_server.clients.command_line import add_home, command_parser
from app_server.config.config_toml import parse_override
from app_server.config.home import resolve_home
from app_server.config.values import ConfigError
from app_server.observability.log_lines import Redactor
from app_server.runtime.standard_streams import one_line
from app_server.threads.checks import Check

NAMES = (
    "threads", "database", "filing", "signals", "notifications", "disk", "modes", "config",
    "keyring", "model", "mcp", "sandbox", "ports", "clock", "limits",
)  # fmt: skip
"""Of the checks in `app_server.cli.checks.catalogue`."""

DESCRIPTION = """\
Check a home folder and this machine, and say for each problem what to do about it. Nothing is
changed, unless --rebuild is given. A server may be running meanwhile. The model provider is asked
for its models, and MCP servers of config.toml are started, listed and ended; --skip leaves that
out."""

EPILOG = """\
what is checked:
  home     the folders are there and can be written; there is space
  logs     every line can be read. A torn last line is what a crash left; damaged lines and lines of
           newer versions are skipped by the server and kept in the file
  locks    which running process holds which thread, and locks whose process has died
  index    it is whole, of this version, and its rows equal what the logs say
  history  the index of what was said is whole and of this version
  codex    rollouts of Codex in the same home
  database where `store` names one: a server could use it; settings of PostgreSQL that lose what
           was acknowledged, and poolers that lend one session to several servers
  filing   the log of projects and sections can be read and added to; which lines are left out
  disk     something can be written and synced, here and where temporary files go
  modes    nobody else can read credentials, or change settings, instructions, hooks, rules,
           skills and plugins
  config   config.toml, the profile and requirements.toml can be used; keys that nothing reads
  keyring  the place for credentials that config.toml asks for is there
  model    the model provider answers and takes the credentials
  mcp      the MCP servers that config.toml enables start, and list their tools
  sandbox  which sandbox works here; a command in it tries to get out, in a temporary folder
  ports    the addresses of --listen are free; without any, whether loopback can be used
  clock    the time is plausible
  limits   open files and sizes of files that the system allows

examples:
  app-server doctor                      check the home that the server uses
  app-server doctor --home DIR --json    the same for programs, as one JSON object on stdout
  app-server doctor --rebuild            make the index from the logs, then check
  app-server doctor --listen ws://127.0.0.1:4500 --only ports
                                         who has taken that port
  app-server doctor --profile work       check what a server with that profile would use
  app-server doctor --skip model --skip mcp
                                         without asking or starting anything

The report goes to stdout, progress to stderr. The exit status is 0 if all is well, 1 if something
should be looked at, and 2 for a wrong call. A check that does not end in time is an error."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for findings, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    chosen = _chosen(parser, options)
    # Half a second of imports, which the help does without.
    from app_server.cli.checks.catalogue import CHECKS, run_checks
    from app_server.cli.checks.machine import Machine
    from app_server.threads.opening.checks import store_checks

    logging.basicConfig(level=logging.ERROR, stream=sys.stderr, format="%(message)s")
    home = resolve_home(options.home)
    try:
        machine = Machine(
            home=home,
            overrides=dict(parse_override(text) for text in options.config),
            profile=options.profile,
            listen=options.listen,
            progress=_report,
        )
        _ = machine.profile_file
    except (ValueError, ConfigError) as exc:
        parser.error(str(exc))
    checks: list[Check] = []
    store = store_checks(home)
    if options.rebuild and store.is_there():
        try:
            checks += store.rebuild(_report)
        except OSError as exc:
            failed = Check("rebuild", "error", f"{exc.filename or home}: {exc.strerror}")
            failed.todo = store.place().todo or "see the other checks"
            checks.append(failed)
    specs = [spec for spec in CHECKS if spec.name in chosen]
    checks.extend(asyncio.run(run_checks(specs, machine)))
    _redact(checks)
    is_well = all(check.status == "ok" for check in checks)
    if options.json:
        report = {
            "version": VERSION,
            "home": str(home),
            "ok": is_well,
            "checks": [asdict(check) for check in checks],
        }
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(render(checks)))
    return 0 if is_well else 1


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Return the names of the checks that the options leave, at least one."""
    if both := [name for name in NAMES if name in options.only and name in options.skip]:
        verb = "is" if len(both) == 1 else "are"
        parser.error(f"{' and '.join(both)} {verb} named by --only and by --skip: leave one out")
    chosen = [name for name in options.only or NAMES if name not in options.skip]
    if not chosen:
        parser.error("--skip leaves no check")
    return chosen


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server doctor", DESCRIPTION, EPILOG)
    add_home(parser)
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="URL",
        help="an address that a server is to listen on; may be given several times",
    )
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of config.toml, as for a server",
    )
    parser.add_argument(
        "-p",
        "--profile",
        metavar="NAME",
        help="check the settings of NAME.config.toml too, over those of config.toml",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=NAMES,
        help="do this check alone; may be given several times (threads: home, logs, locks, index, "
        "codex)",
    )
    parser.add_argument(
        "--skip", action="append", default=[], choices=NAMES, help="leave this check out"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="make the index from the logs first, but for threads that a running server has loaded",
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
    return [one_line(line) for line in lines]


def _redact(checks: Sequence[Check]) -> None:
    """Mask secrets that providers, servers and the system may have repeated."""
    redactor = Redactor(os.environ)
    for check in checks:
        check.message = redactor.redact(check.message)
        check.details = [redactor.redact(detail) for detail in check.details]


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
