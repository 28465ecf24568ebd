r"""Tests that other projects have for their clients of Codex, unmodified, with this server behind.

python -m tests.interop.client_suites [--sdk DIR] [--client DIR] [--program PATH]

DIR of --sdk is `sdk/typescript` of github.com/openai/codex, DIR of --client is
github.com/JaminZhou/codex-app-server-client, both with their `node_modules` (npm install). They are
copied to a temporary folder, and PATH (default: this app-server) is put where their tests look for
Codex. Prints how many of them passed, and the names of those that did not; exits with 1 if there is
one that is not known to fail. Not part of the tests, which do not need Node.js.
Source: docs/clients.md, "Test suites of clients".
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.harness import environment_without
from tests.support.processes import EXECUTABLE

RUN_S = 900.0
PATIENCE = "--testTimeout=60000"


@dataclass(frozen=True)
class Suite:
    """A suite, and where its tests look for Codex."""

    place: str
    """Of its folder in the temporary one."""
    program: str
    """Of Codex, from the temporary folder."""
    command: Sequence[str]
    known: Mapping[str, str]
    """Names of tests that fail, and why."""


USAGE_GREW = "these tests are older than cache_write_input_tokens; Codex 0.169.0 fails them too"
SUITES = {
    "sdk": Suite(
        "sdk/typescript",
        "codex-rs/target/debug/codex",
        ("npx", "jest", "--runInBand", "--forceExit", "--json"),
        {
            "Codex returns thread events": USAGE_GREW,
            "Codex throws ThreadRunError on turn failures": "it wants `stream disconnected before "
            "completion:`, and the model's limit of requests is named here",
        },
    ),
    "client": Suite(
        "client",
        "client/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        ("npx", "vitest", "run", "--reporter=json"),
        {
            "codex app-server integration resolves the version-matched local CLI package": "it "
            "wants the words `codex-cli 0.146.1`",
            "codex app-server integration handles a real app-server command approval without "
            "executing the declined command": "its model calls `shell_command`, a tool of 0.146",
        },
    ),
}


def run_suite(suite: Suite, folder: Path, program: Path) -> bool:
    """Run a suite and print what came of it; returns whether all went as it is known to go."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        # Turns run in a Git repository alone.
        (root / ".git").mkdir()
        shutil.copytree(folder, root / suite.place, symlinks=True)
        place = root / suite.program
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        place.chmod(0o755)
        results = root / "results.json"
        subprocess.run(
            [*suite.command, PATIENCE, f"--outputFile={results}"],
            cwd=root / suite.place,
            env=environment_without("OPENAI_API_KEY"),
            capture_output=True,
            timeout=RUN_S,
            check=False,
        )
        report: Any = json.loads(results.read_text())
    tests = [test for file in report["testResults"] for test in file["assertionResults"]]
    failed = [test["fullName"] for test in tests if test["status"] == "failed"]
    print(f"{suite.place}: {report['numPassedTests']} of {report['numTotalTests']} passed")
    for name in failed:
        print(f"  {name}: {suite.known.get(name, 'UNEXPECTED')}", flush=True)
    return bool(tests) and set(failed) <= set(suite.known)


def main() -> int:
    """Run the suites that are named."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.client_suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in SUITES:
        parser.add_argument(f"--{name}", metavar="DIR", type=Path)
    parser.add_argument("--program", metavar="PATH", type=Path, default=EXECUTABLE)
    options = parser.parse_args()
    chosen = {name: getattr(options, name) for name in SUITES if getattr(options, name) is not None}
    if not chosen:
        parser.error("name a suite: --sdk DIR or --client DIR")
    went = [
        run_suite(SUITES[name], folder.absolute(), options.program.absolute())
        for name, folder in chosen.items()
    ]
    return 0 if all(went) else 1


if __name__ == "__main__":
    sys.exit(main())
