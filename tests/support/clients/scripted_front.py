"""`app-server mcp-server` with a scripted model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.harness import write_config
from tests.support.model import ScriptedModel

WIPE = {"namespace": "mcp__peer", "name": "wipe", "arguments": {"text": "all"}}


@asynccontextmanager
async def scripted(home: Path, config: str = "") -> AsyncIterator[ScriptedModel]:
    """Serve a scripted model, and write the config.toml that leads to it."""
    async with ScriptedModel().serve() as model:
        write_config(home, model.url, config)
        yield model


def result_of(text: str, thread_id: str | None, *, is_error: bool = False) -> dict[str, Any]:
    """Return what a call should come to."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if thread_id is not None:
        result["structuredContent"] = {"threadId": thread_id, "content": text}
    return {**result, "isError": True} if is_error else result
