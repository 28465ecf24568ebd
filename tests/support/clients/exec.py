"""`app-server exec` as a process, beside a scripted model."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.support.forks import ForkedProcess, fork_program
from tests.support.harness import WAIT_S, environment_without, write_config
from tests.support.model import USAGE, ScriptedModel

KNOWN = "model_context_window = 100000\n"
"""Nobody is warned of a model of which nothing is known."""


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events, without the thread's id."""
        events = [json.loads(line) for line in self.out.splitlines()]
        for event in events:
            if event["type"] == "thread.started":
                event["thread_id"] = "THREAD"
        return events

    @property
    def thread_id(self) -> str:
        """Id of the thread, of the first event."""
        thread_id: str = json.loads(self.out.splitlines()[0])["thread_id"]
        return thread_id


@dataclass(frozen=True)
class Stage:
    """A home, a folder in a Git repository, and a model."""

    home: Path
    folder: Path
    model: ScriptedModel

    async def start(self, *words: str, **environment: str) -> ForkedProcess:
        """Start `app-server exec` with words of a command line."""
        base = environment_without(
            "CODEX_HOME", "APP_SERVER_URL", "CODEX_API_KEY", "OPENAI_API_KEY"
        )
        variables = {**base, "APP_SERVER_HOME": str(self.home), **environment}
        return await fork_program(
            "app_server.cli.entry", "exec", *words, environment=variables, folder=self.folder
        )

    async def run(self, *words: str, stdin: bytes = b"", **environment: str) -> Ran:
        """Run it to its end."""
        return await ended(await self.start(*words, **environment), stdin)


async def ended(process: ForkedProcess, stdin: bytes = b"") -> Ran:
    """Wait for the end of a run."""
    with anyio.fail_after(WAIT_S):
        try:
            process.stdin.write(stdin)
            out, err = await process.communicate()
        finally:
            await process.aclose()
    status = process.returncode
    assert status is not None
    return Ran(status, out.decode(), err.decode())


@asynccontextmanager
async def stage(tmp_path: Path, config: str = "") -> AsyncIterator[Stage]:
    """Set a stage while the context lasts."""
    folder = tmp_path / "folder"
    (folder / ".git").mkdir(parents=True)
    async with ScriptedModel().serve() as model:
        write_config(tmp_path / "home", model.url, KNOWN + config)
        yield Stage(tmp_path / "home", folder, model)


def usage(requests: int = 1) -> Mapping[str, int]:
    """Return the tokens of a thread after requests to the scripted model."""
    counts: dict[str, Any] = USAGE
    return {
        "input_tokens": requests * counts["input_tokens"],
        "cached_input_tokens": requests * counts["input_tokens_details"]["cached_tokens"],
        "cache_write_input_tokens": 0,
        "output_tokens": requests * counts["output_tokens"],
        "reasoning_output_tokens": requests * counts["output_tokens_details"]["reasoning_tokens"],
    }


def turn(*items: dict[str, Any], requests: int = 1) -> list[dict[str, Any]]:
    """Return the events of a turn that was completed, around those of its items."""
    return [
        {"type": "thread.started", "thread_id": "THREAD"},
        {"type": "turn.started"},
        *items,
        {"type": "turn.completed", "usage": usage(requests)},
    ]


def completed(number: int, **members: Any) -> dict[str, Any]:
    """Return the event of a completed item."""
    return {"type": "item.completed", "item": {"id": f"item_{number}", **members}}


def said(number: int, text: str) -> dict[str, Any]:
    """Return the event of a message of the model."""
    return completed(number, type="agent_message", text=text)
