"""Spelling of options, and known agents."""

AGENTS = ("codex",)


def spelled(name: str) -> tuple[str, str]:
    """Spell an option as this program does, and as most others do."""
    return f"-{name}", f"--{name}"
