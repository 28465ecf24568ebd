"""How long patches and commands of a model take, for any number of app-servers.

python -m tests.bench.turn_tools TARGET [TARGET…] [--files N] [--rounds N]

A TARGET is a command with `{port}` in it. Each is started in turn, with a fresh home and a model
that plays a script: a turn with one patch of N files of 200 lines, one with a patch of one file,
and one that runs `true`, in a sandbox and without. The whole turn is timed, from the request to its
end.

  python -m tests.bench.turn_tools "codex app-server --listen ws://127.0.0.1:{port}" \
                                "app-server --listen ws://127.0.0.1:{port}"

Homes and files are in /var/tmp, as Codex has no sandbox where its home is in /tmp. These are
figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.server import Client, Target, p50_ms, print_table, started
from tests.support.model import COMPLETED, ScriptedModel, calls, says

FILES = 200
LINES = 200
ROUNDS = 5


def write_files(folder: Path, count: int) -> None:
    """Make the files that are patched, in twenty folders."""
    for number in range(count):
        place = path_of(folder, number)
        place.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"line {line} of file {number}\n" for line in range(LINES))
        place.write_text("".join(lines))


def path_of(folder: Path, number: int) -> Path:
    """Return where a file is."""
    return folder / f"folder{number % 20}" / f"file{number}.txt"


def patch_of(folder: Path, count: int, old: str, new: str) -> dict[str, Any]:
    """Make the call that changes a line in the middle of each file."""
    lines = ["*** Begin Patch"]
    for number in range(count):
        path = path_of(folder, number).relative_to(folder)
        lines += [f"*** Update File: {path}", "@@", f" line 99 of file {number}"]
        lines += [f"-{old.format(number)}", f"+{new.format(number)}"]
    text = "\n".join([*lines, "*** End Patch"])
    return {"type": "custom_tool_call", "name": "apply_patch", "input": text}


async def run_true(client: Client, thread_id: str, model: ScriptedModel) -> None:
    """Run a turn in which the model runs `true`."""
    arguments = {"cmd": "true", "login": False}
    model.scripts[:] = [calls({"name": "exec_command", "arguments": arguments}), says("ok")]
    await client.turn(thread_id, "go")
    output = model.requests[-1]["input"][-1]["output"]
    assert "exited with code 0" in output, output[:200]


class Flip:
    """Turns that change the files there and back."""

    def __init__(self, client: Client, thread_id: str, model: ScriptedModel, folder: Path) -> None:
        self._client = client
        self._thread_id = thread_id
        self._model = model
        self._folder = folder
        self._done = 0

    @property
    def is_open(self) -> bool:
        """Whether the last change was not taken back."""
        return self._done % 2 == 1

    async def turn(self, count: int) -> None:
        """Run one turn; the next one takes its change back."""
        states = ["line 100 of file {}", "changed in file {}"]
        old, new = states if self._done % 2 == 0 else reversed(states)
        self._done += 1
        item = {
            **patch_of(self._folder, count, old, new),
            "call_id": f"call_{self._done}",
            "id": f"ctc_{self._done}",
        }
        done = {"type": "response.output_item.done", "item": item}
        self._model.scripts[:] = [[done, COMPLETED], says("ok")]
        await self._client.turn(self._thread_id, "go")
        output = self._model.requests[-1]["input"][-1]["output"]
        assert output.startswith("Exit code: 0"), output[:200]


async def measure(target: Target, model: ScriptedModel, folder: Path, options: Any) -> None:
    """Fill in a target's figures."""
    async with target.client() as client:
        for sandbox in ("workspace-write", "danger-full-access"):
            thread = await client.call(
                "thread/start",
                {
                    "config": target.config,
                    "cwd": str(folder),
                    "sandbox": sandbox,
                    "approvalPolicy": "never",
                },
            )
            flip = Flip(client, thread["thread"]["id"], model, folder)
            for count in (options.files, 1):
                what = f"{count} files" if count > 1 else "one file"
                name = f"patch of {what}, {sandbox}, p50 ms"
                target.figures[name] = await p50_ms(partial(flip.turn, count), options.rounds)
                if flip.is_open:
                    await flip.turn(count)
            run = partial(run_true, client, thread["thread"]["id"], model)
            name = f"exec_command true, {sandbox}, p50 ms"
            target.figures[name] = await p50_ms(run, 4 * options.rounds)


async def main() -> None:
    """Measure every target in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    measured = []
    tempfile.tempdir = "/var/tmp"
    async with ScriptedModel().serve() as model:
        config = {
            "model": "gpt-5.5",
            "model_provider": "bench",
            "model_providers.bench": {
                "name": "bench",
                "base_url": model.url,
                "wire_api": "responses",
            },
        }
        for text in options.targets:
            print(f"measuring {text}", file=sys.stderr)
            with (
                tempfile.TemporaryDirectory() as place,
                started(text, config, starts=1) as target,
            ):
                folder = Path(place).resolve()
                write_files(folder, options.files)
                await measure(target, model, folder, options)
                measured.append(target)
    print_table(measured)


if __name__ == "__main__":
    asyncio.run(main())
