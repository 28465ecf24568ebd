"""Servers that die by SIGKILL while they answer a named request: sitecustomize.py counts steps."""

from pathlib import Path

FOLDER = Path(__file__).parent


def dying(step: int) -> dict[str, str]:
    """Return variables with which a server dies at a step."""
    return {"PYTHONPATH": str(FOLDER), "TESTS_DIE_AT": str(step)}
