"""Pictures of the inspector's views, for `docs/inspector/` and to be looked at.

Runs a turn that has one of each, and takes every view in light and dark at three widths. Needs what
`.ci/inspector` installs.

    python -m tests.long.inspector_pictures FOLDER
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.clients.inspected_turn import call, whole_turn
from tests.support.clients.inspector import Inspected, inspect
from tests.support.harness import stdio_server
from tests.support.model import ScriptedModel, says

if TYPE_CHECKING:
    from playwright.async_api import Page

CONFIG = stdio_server("peer") + "[features]\ndefault_mode_request_user_input = true\n"
WIDTHS = {"wide": 1280, "tablet": 820, "phone": 390}
HEIGHT = 800
VIEWS = ("requests", "mcp/peer", "apps", "signals", "server", "wire")


@asynccontextmanager
async def prepared(home: Path) -> AsyncIterator[tuple[Inspected, str]]:
    """Run a server with a thread whose turn is done, and one that asks."""
    model = ScriptedModel()
    escalated = {"cmd": "make test", "sandbox_permissions": "require_escalated"}
    model.scripts = [*whole_turn(), call("exec_command", escalated), says("Done.")]
    work = home / "parser"
    work.mkdir()
    options = {"cwd": str(work), "approvalPolicy": "never", "sandbox": "danger-full-access"}
    async with (
        inspect(home / "home", model=model, config=CONFIG) as inspected,
        inspected.served.client() as client,
    ):
        thread_id = await client.start_thread(**options)
        await client.turn(thread_id, "Why does the last line vanish?")
        asking = await client.start_thread(cwd=str(work), approvalPolicy="on-request")
        text = [{"type": "text", "text": "Run the tests"}]
        await client.call("turn/start", {"threadId": asking, "input": text})
        await client.wait_for("item/commandExecution/requestApproval")
        yield inspected, thread_id


async def take(page: "Page", file: Path) -> None:
    """Take the page when it has drawn what it was told."""
    await page.evaluate("new Promise((done) => setTimeout(done, 700))")
    await page.screenshot(path=file)


async def take_all(folder: Path) -> None:
    """Take all pictures into a folder."""
    with tempfile.TemporaryDirectory() as home:
        async with prepared(Path(home)) as (inspected, thread_id):
            page = inspected.page
            views = {"thread": f"threads/{thread_id}", **{v.partition("/")[0]: v for v in VIEWS}}
            views["log"] = f"threads/{thread_id}/wire"
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                for size, width in WIDTHS.items():
                    await page.set_viewport_size({"width": width, "height": HEIGHT})
                    for name, address in views.items():
                        await page.evaluate(f"location.hash = '#/{address}'")
                        await take(page, folder / f"{name}-{size}-{scheme}.png")


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.inspector_pictures")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_all(options.folder))


if __name__ == "__main__":
    main()
