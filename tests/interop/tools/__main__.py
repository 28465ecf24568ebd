"""Hold conversations about tools with two servers and print where they differ.

python -m tests.interop.tools [--reference COMMAND] [--ours COMMAND] [--show] [NAME…]

A COMMAND has `{port}` in it. NAME picks scenarios whose names begin with it. Without `--reference`
nothing is compared, and the conversations are printed. Exits with 1 if a scenario differs without a
reason (`scenarios.py`, `patches.py`), or does not although it has one.

  python -m tests.interop.tools --reference "codex app-server --listen ws://127.0.0.1:{port}" patch
"""

import argparse
import asyncio
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.tools.patches import PATCHES
from tests.interop.tools.play import play, running
from tests.interop.tools.scenarios import SCENARIOS, Scenario
from tests.support.model import ScriptedModel

RETRIES = 2
"""Of conversations that differ without a reason, or do not although they have one."""

OURS = f"{Path(sys.executable).with_name('app-server')} --listen ws://127.0.0.1:{{port}}"


async def conversations(command: str, chosen: Sequence[Scenario]) -> list[list[str]]:
    """Hold the chosen conversations with a server of its own."""
    async with ScriptedModel().serve() as model, running(command, model) as (place, url):
        return [await play(scenario, place, url, model) for scenario in chosen]


async def compare(
    ours: str, reference: str | None, chosen: Sequence[Scenario], *, show: bool
) -> bool:
    """Print the differences; True if each has its reason."""
    mine = await conversations(ours, chosen)
    theirs = mine
    if reference is not None:
        theirs = await conversations(reference, chosen)
        for _ in range(RETRIES):
            await _again(ours, reference, chosen, mine, theirs)
    well = True
    for scenario, left, right in zip(chosen, theirs, mine, strict=True):
        if show or reference is None:
            print(f"## {scenario.name}", *right, sep="\n")
        if reference is None:
            continue
        differs = left != right
        as_expected = _fits(scenario, left, right)
        well = well and as_expected
        verdict = "differs" if differs else "same"
        print(f"{'ok  ' if as_expected else 'FAIL'} {scenario.name}: {verdict}")
        if not as_expected:
            lines = difflib.unified_diff(left, right, "reference", "ours", lineterm="", n=1)
            print(*(f"    {line}" for line in lines), sep="\n")
    return well


async def _again(
    ours: str,
    reference: str,
    chosen: Sequence[Scenario],
    mine: list[list[str]],
    theirs: list[list[str]],
) -> None:
    """Hold what does not fit once more, and put it in the place of what was said before."""
    # The order of what a server says about different things is chance now and then.
    odd = [n for n, scenario in enumerate(chosen) if not _fits(scenario, theirs[n], mine[n])]
    again = [chosen[number] for number in odd]
    for heard, command in ((mine, ours), (theirs, reference)):
        for number, said in zip(odd, await conversations(command, again), strict=True):
            heard[number] = said


def _fits(scenario: Scenario, left: list[str], right: list[str]) -> bool:
    return (left != right) == (scenario.reason is not None)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.tools", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--reference", metavar="COMMAND")
    parser.add_argument("--ours", metavar="COMMAND", default=OURS)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    chosen = [
        scenario
        for scenario in (*SCENARIOS, *PATCHES)
        if not options.names or scenario.name.startswith(tuple(options.names))
    ]
    well = asyncio.run(compare(options.ours, options.reference, chosen, show=options.show))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
