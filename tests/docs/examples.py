"""Calls each method over a socket and writes what was sent and answered into docs/examples.json.

python -m tests.docs.examples

.ci/docs shows them in the reference of the protocol; test_examples.py makes each call again.
"""

import asyncio
import json
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.interop.methods.cases import methods
from tests.interop.methods.play import BEGIN_TURNS, Caller, prepare, until_idle
from tests.interop.methods.valid import Facts, valid_params
from tests.interop.tools.__main__ import OURS
from tests.interop.tools.play import running
from tests.support.model import ScriptedModel, says
from tests.support.paths import DOCS

FILE = DOCS / "examples.json"

MAX_ELEMENTS = 1
"""Of a list that an example shows."""
MAX_CHARS = 200
"""Of a text that an example shows."""

HELLO = {
    "clientInfo": {"name": "my-client", "version": "1.0"},
    "capabilities": {"experimentalApi": True},
}

SIGNAL = {"source": "tickets", "id": "42"}

EXTENSIONS: Mapping[str, Callable[[Facts], dict[str, Any]]] = {
    "signal/deliver": lambda facts: {
        "signal": {**SIGNAL, "type": "Question", "sender": "an-agent", "summary": "Is it done?"},
        "target": {"threadId": facts.thread_id},
        "mode": "passive",
    },
    "signal/list": lambda facts: {"threadId": facts.thread_id},
    "signal/read": lambda _: SIGNAL,
    "signal/recall": lambda _: SIGNAL,
    "thread/wake/set": lambda facts: {
        "threadId": facts.thread_id,
        "source": {"type": "timer", "atMs": 4_102_444_800_000},
    },
    "thread/wake/list": lambda facts: {"threadId": facts.thread_id},
    "thread/wake/cancel": lambda facts: {
        "threadId": facts.thread_id,
        "wakeId": "01900000-0000-7000-8000-000000000000",
    },
    "thread/budget/set": lambda facts: {
        "threadId": facts.other_thread_id,
        "budget": {"tokens": 1_000_000},
    },
    "usage/read": lambda _: {"groupBy": "model"},
    "notification/list": lambda _: {},
    "mcpServer/output/read": lambda _: {"name": "none"},
    "mcpServer/restart": lambda _: {"name": "none"},
    "mcpServer/set": lambda _: {"name": "none", "enabled": False},
}
"""Params of the methods that the reference does not have, in the order in which they are called."""

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


async def calls() -> dict[str, dict[str, Any]]:
    """Call each method with params that fit; returns params and answer, as they were, by method."""
    async with ScriptedModel().serve() as model, running(OURS, model) as (place, url):
        model.scripts[:] = [says("Hello.") for _ in range(50)]
        facts = await prepare(url, place)
        valid = valid_params(facts)
        valid |= {method: fill(facts) for method, fill in EXTENSIONS.items()}
        found = {}
        async with Caller(url, opts_in=None) as caller:
            message = await caller.message("initialize", HELLO)
            found["initialize"] = {"params": HELLO, "result": _shown(message["result"], place.root)}
        async with Caller(url) as caller:
            for method in (*EXTENSIONS, *methods()):
                params = valid.get(method, {})
                message = await caller.message(method, params)
                found[method] = {
                    "params": _shown(params, place.root),
                    **{key: _shown(message[key], place.root) for key in message if key != "id"},
                }
                if method in BEGIN_TURNS:
                    await until_idle(caller, (facts.thread_id, facts.other_thread_id))
        return found


def _shown(value: Any, root: Path) -> Any:
    """Shorten a value, and take out what is of this machine and this run."""
    match value:
        case dict():
            return {str(key): _shown(inner, root) for key, inner in value.items()}
        case list():
            return [_shown(element, root) for element in value[:MAX_ELEMENTS]]
        case str():
            plain = value.replace(str(root), "/home/me").replace(platform.release(), "6.1")
            text = UUID.sub(_uuid, plain)
            return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
        case int() if value > 1_600_000_000_000:
            return 1_790_000_000_000
        case int() if value > 1_600_000_000:
            return 1_790_000_000
    return value


def _uuid(found: re.Match[str]) -> str:
    # Ids of threads, turns and items are told apart in the text by their place.
    return f"019f0000-0000-7000-8000-{found[0][-12:]}"


def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return the calls that are written down."""
    examples: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text())
    return examples


def main() -> int:
    """Write the file anew."""
    rows = [
        f"{json.dumps(method)}: {json.dumps(call, ensure_ascii=False)}"
        for method, call in sorted(asyncio.run(calls()).items())
    ]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
