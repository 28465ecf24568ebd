"""Compare what config/read shows of a rich config.toml with what Codex shows of it, key by key.

python -m tests.interop.methods.settings [--reference COMMAND] [--record]

A COMMAND has `{port}` in it. Without `--reference` the answer of Codex is the one that was recorded
(tests/recordings/config_read.json). Prints each difference with its reason (REASONS), and exits
with 1 if one has none, or a reason has no difference.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from app_server.config.masking import MARK
from tests.interop.tools.__main__ import OURS
from tests.interop.tools.play import Client, opened, running
from tests.support.model import ScriptedModel
from tests.support.paths import RECORDINGS

RICH = RECORDINGS / "config_read.toml"
RECORDED = RECORDINGS / "config_read.json"

OF_CODEX = "It belongs to a part that Codex alone has; what is not set is null."
LEFT_OUT = "What is not set in a table is left out."
SECRET = "It is a secret: a mark stands in its place."
OURS_ALONE = "Codex does not have it."

REASONS: Mapping[str, str] = {
    "agents.max_*": "It is shown under the name that the file has.",
    "approval_timeout_s": OURS_ALONE,
    "apps_service": OURS_ALONE,
    "background_terminal_max_timeout": OF_CODEX,
    "chatgpt_base_url": SECRET,
    "features.*": "Each has the features that it has.",
    "hooks.*": LEFT_OUT,
    "include_collaboration_mode_instructions": OF_CODEX,
    "include_environment_context*": OF_CODEX,
    "include_permissions_instructions": OF_CODEX,
    "marketplaces.b.source": SECRET,
    "mcp_servers.*.environment_id": LEFT_OUT,
    "mcp_servers.*.required": "Codex leaves a false one out; it is shown as the file has it.",
    "mcp_servers.http.http_headers.Authorization": SECRET,
    "mcp_servers.http.url": SECRET,
    "mcp_servers.stdio.env.TOKEN": SECRET,
    "mcp_switches": OURS_ALONE,
    "model_prices": OURS_ALONE,
    "budget": OURS_ALONE,
    "memory_budget_bytes": OURS_ALONE,
    "model_providers.*.supports_*": LEFT_OUT,
    "model_providers.*.requires_openai_auth": LEFT_OUT,
    "model_providers.*.wire_api": LEFT_OUT,
    "model_providers.cmd.auth.args": SECRET,
    "model_providers.cmd.auth.*": LEFT_OUT,
    "model_providers.mock.base_url": SECRET,
    "model_providers.mock.experimental_bearer_token": SECRET,
    "model_providers.mock.http_headers.X-Api-Key": SECRET,
    "model_providers.mock.query_params.api-version": SECRET,
    "model_supports_search_tool": OURS_ALONE,
    "lease_seconds": OURS_ALONE,
    "node_address": OURS_ALONE,
    "node_secret_file": OURS_ALONE,
    "notice.*": OF_CODEX,
    "notification_hosts": OURS_ALONE,
    "notification_link": OURS_ALONE,
    "notifications": OURS_ALONE,
    "permissions.careful.network.proxy_url": SECRET,
    "profiles": OF_CODEX,
    "refuse_other_users": OURS_ALONE,
    "sandbox_hidden_paths": OURS_ALONE,
    "shell_environment_policy.set.*": SECRET,
    "store": OURS_ALONE,
    "thread_events_kept*": OURS_ALONE,
    "tool_suggest.discoverables": LEFT_OUT,
    "tui.*": OF_CODEX,
    "wakes": OURS_ALONE,
}
"""Why a value differs, by a pattern of its dotted path; the first that fits counts."""


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ, theirs and ours, by dotted path.

    Null, and not there within a table, are the same: both say that nothing is set.
    """
    left, right = dict(_leaves((), theirs)), dict(_leaves((), ours))
    return {
        path: (left.get(path), right.get(path))
        for path in sorted({*left, *right})
        if left.get(path) != right.get(path)
        or ("." not in path and (path in left) != (path in right))
    }


def without_reason(found: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield differences without a reason, secrets without a mark, and reasons without a use."""
    unused = set(REASONS)
    for path, (_, ours) in found.items():
        pattern = next((each for each in REASONS if fnmatchcase(path, each)), None)
        if pattern is None:
            yield path
            continue
        unused.discard(pattern)
        if (REASONS[pattern] == SECRET) != (MARK in str(ours)):
            yield path
    yield from sorted(unused)


def recorded() -> dict[str, Any]:
    """Return what Codex showed when it was recorded."""
    shown: dict[str, Any] = json.loads(RECORDED.read_text())
    return shown


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield ".".join(path), value


async def shown(command: str) -> dict[str, Any]:
    """Return the settings that a server shows of RICH."""
    async with ScriptedModel().serve() as model, running(command, model) as (place, url):
        client = Client(await opened(url))
        client_info = {"name": "m", "version": "1"}
        capabilities = {"experimentalApi": True}
        await client.call("initialize", {"clientInfo": client_info, "capabilities": capabilities})
        await client.send({"method": "initialized"})
        (place.home / "config.toml").write_text(RICH.read_text())
        answer = await client.call("config/read", {})
        await client.close()
        text = json.dumps(answer["config"]).replace(str(Path.cwd()), "CWD")
        config: dict[str, Any] = json.loads(text)
        return config


def main() -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.methods.settings")
    parser.add_argument("--reference", metavar="COMMAND")
    parser.add_argument("--ours", metavar="COMMAND", default=OURS)
    parser.add_argument("--record", action="store_true", help="write down the reference's answer")
    options = parser.parse_args()
    theirs = asyncio.run(shown(options.reference)) if options.reference else recorded()
    if options.record:
        RECORDED.write_text(json.dumps(theirs, indent=1, sort_keys=True) + "\n")
    found = differences(theirs, asyncio.run(shown(options.ours)))
    wrong = set(without_reason(found))
    for path, (left, right) in found.items():
        reason = next((text for each, text in REASONS.items() if fnmatchcase(path, each)), "")
        print(f"{'FAIL' if path in wrong else 'ok  '} {path}: {left} | {right}\n     {reason}")
    print(
        f"{len(found)} values differ; without a reason, or a reason without a use: {sorted(wrong)}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
