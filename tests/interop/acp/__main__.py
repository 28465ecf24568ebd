"""The ACP adapter of Codex, `@agentclientprotocol/codex-acp`, with this server behind it.

python -m tests.interop.acp [--adapter PATH] [--elsewhere]

Starts the adapter as an editor does, with CODEX_PATH naming this server's executable, and speaks
the Agent Client Protocol with it over stdio: a session, prompts, a cancel, a mode, a close, it
again, and a tool of an MCP server; then what Zed asks, as Zed asks it. PATH is the adapter's
`dist/index.js`; without it `codex-acp` on PATH is started. With `--elsewhere`, which needs
PostgreSQL, a program is in the server's place that speaks with a node which owns none of the
threads: they have two owners. Prints a line a check, `ok` or `FAIL`, and exits with 1 if there was
a failure, with 2 where the adapter is missing. Not part of the tests, which do not need Node.js.
Source: docs/clients.md, "Editors"; docs/editors.md, "Zed"; https://agentclientprotocol.com.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import anyio

from tests.interop.acp import sessions, zed
from tests.interop.elsewhere import own_program, program_elsewhere
from tests.long.real_servers import Report

CHECKS = {"sessions": sessions.check_all, "zed": zed.check_all}


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.acp")
    parser.add_argument("--adapter", metavar="PATH")
    parser.add_argument("--elsewhere", action="store_true")
    options = parser.parse_args()
    path, program = options.adapter, program_elsewhere if options.elsewhere else own_program
    installed, node = shutil.which("codex-acp"), shutil.which("node")
    if path is None and installed is not None:
        adapter = [installed]
    elif path is not None and node is not None:
        adapter = [node, path]
    else:
        needed = "codex-acp (or node and --adapter PATH) is needed"
        print(f"nothing was checked: {needed}", file=sys.stderr)
        return 2
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        for name, check_all in CHECKS.items():
            folder = Path(work, name)
            folder.mkdir()
            anyio.run(check_all, adapter, program, folder, report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
