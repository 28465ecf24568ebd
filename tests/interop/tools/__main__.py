"""Hold conversations about tools with two servers and print where they differ.

python -m tests.interop.tools [--reference COMMAND] [--ours COMMAND] [--show] [NAME…]

A COMMAND has `{port}` in it. NAME picks scenarios whose names begin with it. Without `--reference`
nothing is compared, and the conversations are printed. Exits with 1 if a scenario differs without a
reason (tests/interop/tools/scenarios.py), or does not although it has one.

  python -m tests.interop.tools --reference "codex app-server --listen ws://127.0.0.1:{port}" patch
"""

import argparse
import asyncio
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.tools.play import play, running
from tests.interop.tools.scenarios import SCENARIOS, Scenario
from tests.support.harness import ScriptedModel

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
    theirs = mine if reference is None else await conversations(reference, chosen)
    well = True
    for scenario, left, right in zip(chosen, theirs, mine, strict=True):
        if show or reference is None:
            print(f"## {scenario.name}", *right, sep="\n")
        if reference is None:
            continue
        differs = left != right
        as_expected = differs == (scenario.reason is not None)
        well = well and as_expected
        verdict = "differs" if differs else "same"
        print(f"{'ok  ' if as_expected else 'FAIL'} {scenario.name}: {verdict}")
        if not as_expected:
            lines = difflib.unified_diff(left, right, "reference", "ours", lineterm="", n=1)
            print(*(f"    {line}" for line in lines), sep="\n")
    return well


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
        for scenario in SCENARIOS
        if not options.names or scenario.name.startswith(tuple(options.names))
    ]
    well = asyncio.run(compare(options.ours, options.reference, chosen, show=options.show))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
