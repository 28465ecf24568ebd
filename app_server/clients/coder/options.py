"""How options are spelled, and which agents there are."""

AGENTS = ("codex",)


def spelled(name: str) -> tuple[str, str]:
    """Spell an option as this program does, and as most others do."""
    return f"-{name}", f"--{name}"
