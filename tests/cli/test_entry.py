"""The way in: what a start imports, and how."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from app_server import VERSION
from app_server.cli import doctor, serve
from app_server.cli.checks.catalogue import CHECKS

GARBAGE = """
import gc, json, sys
from app_server.cli import entry

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "app_server.cli.serve":
            enabled.append(gc.isenabled())

enabled = []
sys.meta_path.insert(0, Watch())
sys.argv = ["app-server", "--version-that-nobody-has"]
try:
    entry.main()
except SystemExit as ended:
    print(json.dumps([enabled, gc.isenabled(), gc.get_freeze_count() > 0, ended.code]))
"""

STARTED = """
import json, os, sys
from app_server.cli import serve

def listening(urls):
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)

serve.print_addresses = listening
serve.main(["--listen", "ws://127.0.0.1:0", "--home", sys.argv[1]])
"""

CORE = """
import json, sys
import app_server.server.core

print(json.dumps(sorted(sys.modules)))
"""

MCP = """
import json, sys
from app_server.cli import mcp

mcp.main(["list", "--home", sys.argv[1]])
print(json.dumps(sorted(sys.modules)))
"""

HELP = """
import json, sys
from app_server.cli import entry

sys.argv = ["app-server", "doctor", "--help"]
try:
    entry.main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)))
"""

SAID = """
import json, sys
from app_server.cli import entry

before = set(sys.modules)
sys.argv = ["app-server", "--version"]
assert entry.main() == 0
print(json.dumps([sorted(set(sys.modules) - before), "argparse" in sys.modules]))
"""

CODER = """
import json, sys
from app_server.clients.coder import cli

sys.argv = ["coder", "--help"]
try:
    cli.main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)))
"""

MOST_TO_HELP = 150

MOST_TO_LISTEN = 319
"""Modules until clients can connect, those of the standard library and of other packages too."""

PACKAGES_TO_LISTEN = {"cli", "config", "observability", "rpc", "runtime", "server", "transport"}
"""All that a start imports of the server before that; of `rpc` two modules that import nothing."""

MOST_TO_ANSWER = 800
"""Modules until the first request can be answered."""

MOST_IN_PACKAGE = {
    "app_server.threads": 72,
    "app_server.host": 34,
    "protocol": 45,
    "app_server.permissions": 35,
    "app_server.extensions": 28,
    "app_server.rpc": 21,
    "app_server.server": 20,
    "app_server.mcp": 20,
    "app_server.runtime": 25,
    "app_server.models": 15,
}
"""The heaviest ones. One that grows makes the first answer slower: import what that does not need
where it is needed (docs/architecture.md)."""

MOST_ELSEWHERE = 14

NEVER = {"httpx", "httpx2", "mcp", "opentelemetry", "starlette", "tomlkit", "uvicorn"}
"""Libraries that a start does without, and the first request."""


def run(code: str, *words: str) -> str:
    """Run a program of a few lines, and return what it prints."""
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_garbage_collection_is_off_while_the_program_is_imported() -> None:
    assert json.loads(run(GARBAGE)) == [[False], True, True, 2]


def test_the_module_of_the_program_can_be_run_by_its_name() -> None:
    command = [sys.executable, "-m", "app_server.cli.entry", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"app-server {VERSION}\n")


def test_the_version_is_said_without_importing_what_says_more() -> None:
    said, modules = run(SAID).splitlines()
    assert (said, json.loads(modules)) == (f"app-server {VERSION}", [[], False])


def test_the_help_of_coder_imports_no_connections() -> None:
    *_, modules = run(CODER).splitlines()
    left_out = {*NEVER, "asyncio", "pydantic", "sqlite3", "websockets"}
    assert left_out & set(packages_of(json.loads(modules))) == set()
    assert len(json.loads(modules)) <= MOST_TO_HELP


def packages_of(modules: list[str]) -> Counter[str]:
    return Counter(
        ".".join(name.split(".")[: 2 if name.startswith("app_server.") else 1]) for name in modules
    )


def test_clients_can_connect_before_the_server_is_imported(tmp_path: Path) -> None:
    modules = json.loads(run(STARTED, str(tmp_path)))
    packages = packages_of(modules)
    ours = {package for package in packages if package.startswith("app_server.")}
    assert ours == {f"app_server.{package}" for package in PACKAGES_TO_LISTEN}
    light = {"app_server.rpc.message_stream"}
    assert {name for name in modules if name.startswith("app_server.rpc.")} <= light
    assert {*NEVER, "jsonrpcserver", "protocol", "pydantic", "sqlite3"} & set(packages) == set()
    assert len(modules) <= MOST_TO_LISTEN


def test_a_command_that_reads_settings_imports_no_mcp_sdk(tmp_path: Path) -> None:
    *_, modules = run(MCP, str(tmp_path)).splitlines()
    assert set(packages_of(json.loads(modules))) & {*NEVER, "cryptography"} == set()


def test_the_help_of_doctor_imports_nothing_of_what_is_checked() -> None:
    *_, modules = run(HELP).splitlines()
    assert len(json.loads(modules)) <= MOST_TO_LISTEN
    assert [spec.name for spec in CHECKS] == list(doctor.NAMES)


def test_the_first_request_waits_for_no_more_modules_than_it_did() -> None:
    modules = json.loads(run(CORE))
    packages = packages_of(modules)
    ours = {
        package: number for package, number in packages.items() if package.startswith("app_server.")
    }
    ours["protocol"] = packages["protocol"]
    grown = {
        package: number
        for package, number in ours.items()
        if number > MOST_IN_PACKAGE.get(package, MOST_ELSEWHERE)
    }
    assert grown == {}
    assert ours["app_server.threads"] > 0
    assert len(modules) <= MOST_TO_ANSWER
    assert "app_server.observability.telemetry.spans" in modules
    assert "app_server.observability.telemetry.exporting" not in modules
    assert NEVER & set(packages) == set()


def test_worker_threads_of_a_server_hand_the_interpreter_over_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, during = sys.getswitchinterval(), list[float]()

    def run(main: object, listen: object) -> int:
        during.append(sys.getswitchinterval())
        return 0

    monkeypatch.setattr(serve, "_run", run)
    try:
        assert serve.main(["serve", "--home", str(tmp_path)]) == 0
    finally:
        sys.setswitchinterval(before)
    assert during == pytest.approx([serve.SWITCH_S])
