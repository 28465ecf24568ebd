"""`coder -codex-app-server-url`: the terminal client with a receiver, and signals into its thread.

Source: docs/receiver.md, "The launcher".
"""

import os
import shlex
from pathlib import Path
from typing import Any

import anyio

from tests.interop.elsewhere import Serving
from tests.interop.screen import program
from tests.long.real_servers import Report
from tests.support.harness import write_config
from tests.support.model import ScriptedModel, says
from tests.support.processes import EXECUTABLE
from tests.support.receiver.peer import KEY, signal
from tests.support.receiver.processes import (
    post,
    router_process,
    states,
    until,
)

SESSION = "Texi"


def _says_what_came(body: dict[str, Any]) -> list[Any]:
    """Say what the last item of a request is: a signal, or what the user typed."""
    text = str(body["input"][-1]["content"][-1]["text"])
    return says("A signal came" if "[signal]" in text else f"You said: {text}")


async def check_coder(codex: str, serving: Serving, work: Path, report: Report) -> None:
    """Start the client with `coder` on a server that is there, and send a signal to it."""
    home, client, folder, routing = (
        work / name for name in ("home", "client", "folder", "routing")
    )
    binaries = work / "bin"
    for made in (home, client, folder, routing, binaries):
        made.mkdir()
    (binaries / "codex").symlink_to(codex)
    async with router_process(routing) as (router, _):
        model = ScriptedModel()
        model.choose = _says_what_came
        async with model.serve() as served:
            write_config(home, served.url)
            with (home / "config.toml").open("a") as file:
                file.write(f'\n[projects."{folder}"]\ntrust_level = "trusted"\n')
            coder = str(EXECUTABLE.with_name("coder"))
            environment = {
                "CODEX_HOME": str(client),
                "APP_SERVER_HOME": str(home),
                "PATH": f"{binaries}:{EXECUTABLE.parent}:{os.environ['PATH']}",
                "PRISM_API_KEY": KEY,
            }
            install = [coder, "install", "-router-url", router, "-session", SESSION]
            await anyio.run_process([*install, "-bin", str(binaries)], env=os.environ | environment)
            async with serving(home, PRISM_API_KEY=KEY) as url:
                words = [coder, "-agent", "codex", "-codex-app-server-url", url]
                line = shlex.join([*words, "-cd", str(folder)])
                with (
                    report.check("coder on a server that is there: a signal wakes the thread"),
                    program(line, folder, **environment) as screen,
                ):
                    await screen.say("hello there")
                    await screen.shows("You said: hello there")
                    await post(router, signal("wake-1", delivery_class="sync"))
                    await screen.shows("A signal came")
                    ledger = home / "receiver" / f"{SESSION}.sqlite3"
                    await until(lambda: states(ledger).get("wake-1") == "injected")
                    await screen.quit()
