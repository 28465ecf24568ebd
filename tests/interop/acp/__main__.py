"""ACP, spoken by the server, and by the adapter of Codex, `@agentclientprotocol/codex-acp`.

python -m tests.interop.acp [--adapter PATH] [--modules DIR] [--elsewhere]

Plays an editor over stdio: a session, prompts, a cancel, a mode, a close, it again, and a tool of
an MCP server; then what Zed asks, as Zed asks it. First natively (`app-server acp`), then with the
adapter, with CODEX_PATH naming this server's executable, and then one scenario both ways, whose
transcripts are compared. PATH is the adapter's `dist/index.js`; without it `codex-acp` on PATH is
started, if it is there. DIR has `node_modules` with @agentclientprotocol/sdk, ws, and perhaps acpx:
they are clients of the server, over stdio and WebSocket. With `--elsewhere`, which needs
PostgreSQL, the adapter alone is tried, with a program in the server's place that speaks with a node
which owns none of the threads: they have two owners. Prints a line a check, `ok` or `FAIL`, and
exits with 1 if there was a failure. Not part of the tests, which do not need Node.js.
Source: docs/acp.md; docs/clients.md, "Editors"; docs/editors.md, "Zed";
https://agentclientprotocol.com.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import anyio

from tests.interop.acp import natively, sessions, transcripts, zed
from tests.interop.elsewhere import own_program, program_elsewhere
from tests.long.real_servers import Report

CHECKS = {"sessions": sessions.check_all, "zed": zed.check_all}


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.acp")
    parser.add_argument("--adapter", metavar="PATH")
    parser.add_argument("--modules", metavar="DIR", type=Path)
    parser.add_argument("--elsewhere", action="store_true")
    options = parser.parse_args()
    path, program = options.adapter, program_elsewhere if options.elsewhere else own_program
    installed, node = shutil.which("codex-acp"), shutil.which("node")
    adapter = None
    if path is None and installed is not None:
        adapter = [installed]
    elif path is not None and node is not None:
        adapter = [node, path]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if not options.elsewhere:
            for name, check_all in CHECKS.items():
                (work / "native" / name).mkdir(parents=True)
                anyio.run(check_all, None, own_program, work / "native" / name, report)
            if options.modules is not None:
                anyio.run(natively.check_all, options.modules.absolute(), work / "npm", report)
        if adapter is None:
            print("codex-acp (or node and --adapter PATH) was not tried", file=sys.stderr)
            return 1 if report.failures else 0
        for name, check_all in CHECKS.items():
            (work / name).mkdir()
            anyio.run(check_all, adapter, program, work / name, report)
        if not options.elsewhere:
            anyio.run(transcripts.compare, adapter, own_program, work / "both", report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
