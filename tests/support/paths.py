"""Where things are in this repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

DOCS = ROOT / "docs"

RECORDINGS = ROOT / "tests" / "recordings"
"""What was recorded of other programs."""
