"""What the wire types cost a process: importing them, and building their validators.

python -m tests.bench.processor.imports [--rounds N]

Each figure is the median of fresh processes. These are figures to look at, not tests.
"""

import argparse
import statistics
import subprocess
import sys

CASES = {
    "pydantic alone": "import pydantic.fields, pydantic.main",
    "the table of methods": "import protocol.contract.methods",
    "the table and one message": (
        "from protocol.contract.methods import METHODS\n"
        "METHODS['thread/start'].parse_params({'cwd': '/'})"
    ),
    "every type": "from protocol.export.definitions import load_types; load_types()",
    "every validator": (
        "from protocol.export.definitions import load_types\n"
        "from protocol.contract.specs import build_types\n"
        "build_types(*load_types().values())"
    ),
}
SCRIPT = "import time; began = time.perf_counter()\n{}\nprint(time.perf_counter() - began)"


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="processes a figure (default: 10)")
    options = parser.parse_args()
    for name, code in CASES.items():
        took_ms = [1000 * _run(code) for _ in range(options.rounds)]
        print(f"{name:26} {statistics.median(took_ms):7.1f} ms")


def _run(code: str) -> float:
    command = [sys.executable, "-c", SCRIPT.format(code)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


if __name__ == "__main__":
    main()
