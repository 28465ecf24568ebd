"""Call every method of two servers, well and badly, and print where the classes of answers differ.

python -m tests.interop.methods [--reference COMMAND] [--ours COMMAND] [--all] [--record] [METHOD…]

A COMMAND has `{port}` in it. METHOD picks methods whose names begin with it. The class of an answer
is the code of its error, or the members of its result; ours may have more of them. Exits with 1 if
a class differs without a reason (`differences.py`), or does not although it has one. Without
`--reference` the classes are those that the reference had when they were recorded.

  python -m tests.interop.methods --reference "codex app-server --listen ws://127.0.0.1:{port}" fs/
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping

from tests.interop.methods.cases import methods
from tests.interop.methods.differences import reason_of
from tests.interop.methods.play import Answer, answers
from tests.interop.tools.__main__ import OURS
from tests.support.paths import RECORDINGS

RECORDED = RECORDINGS / "methods.json"


def is_same(theirs: Answer, ours: Answer) -> bool:
    """Whether a client that knows the one can use the other."""
    return theirs.kind == ours.kind and theirs.members <= ours.members


def report(theirs: Mapping[str, Answer], ours: Mapping[str, Answer], *, shows_all: bool) -> bool:
    """Print the table; True if each difference has its reason."""
    well = True
    counts = {"same": 0, "differs": 0}
    for case, answer in theirs.items():
        same = is_same(answer, ours[case])
        counts["same" if same else "differs"] += 1
        as_expected = same == (reason_of(case) is None)
        well = well and as_expected
        if shows_all or not as_expected:
            verdict = "ok  " if as_expected else "FAIL"
            print(f"{verdict} {case}")
            print(f"    reference {_shown(answer)}\n    ours      {_shown(ours[case])}")
    print(f"{len(theirs)} calls: {counts['same']} same, {counts['differs']} differ")
    return well


def _shown(answer: Answer) -> str:
    return f"{answer.kind} {answer.text}{' '.join(sorted(answer.members))}"[:200]


def recorded() -> dict[str, Answer]:
    """Return the answers of the reference that were recorded."""
    rows = json.loads(RECORDED.read_text())
    return {case: Answer(kind, frozenset(members)) for case, (kind, members) in rows.items()}


def record(answers_: Mapping[str, Answer]) -> None:
    """Write the answers of the reference down."""
    rows = [
        f"{json.dumps(case)}: {json.dumps([answer.kind, sorted(answer.members)])}"
        for case, answer in answers_.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.methods", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="METHOD")
    parser.add_argument("--reference", metavar="COMMAND")
    parser.add_argument("--ours", metavar="COMMAND", default=OURS)
    parser.add_argument("--all", action="store_true", help="print what is the same, too")
    parser.add_argument("--record", action="store_true", help="write down the reference's answers")
    options = parser.parse_args()
    chosen = [
        name for name in methods() if not options.names or name.startswith(tuple(options.names))
    ]
    if options.reference is None:
        theirs = {
            case: answer
            for case, answer in recorded().items()
            if case.startswith(tuple(f"{name} " for name in chosen))
        }
    else:
        theirs = asyncio.run(answers(options.reference, chosen))
    if options.record:
        record(theirs)
    ours = asyncio.run(answers(options.ours, chosen))
    return 0 if report(theirs, ours, shows_all=options.all) else 1


if __name__ == "__main__":
    sys.exit(main())
