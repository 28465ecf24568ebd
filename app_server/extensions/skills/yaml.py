"""The YAML that skills are described in, read with bounds. Importing this imports PyYAML.

Source: docs/skills.md, "A skill".
"""

from typing import Any

import yaml

from app_server.runtime.files.contained import BrokenFiles

FENCE = "---"


def front_matter(text: str) -> dict[str, Any]:
    """Return what stands between the two `---` at the head of a text.

    Raises:
        BrokenFiles: the text does not begin with it, it has no end, or it is no mapping.
    """
    lines = text.splitlines()
    if not lines or lines[0].strip() != FENCE:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    ends = (number for number, line in enumerate(lines[1:], start=1) if line.strip() == FENCE)
    end = next(ends, None)
    if end is None:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    return mapping("\n".join(lines[1:end]))


def mapping(text: str) -> dict[str, Any]:
    """Return the members of a mapping; an empty text has none.

    Raises:
        BrokenFiles: it is no YAML, or another value.
    """
    try:
        value = yaml.safe_load(text)
    except RecursionError as exc:
        raise BrokenFiles("invalid YAML: nested too deeply") from exc
    except (yaml.YAMLError, ValueError) as exc:
        # A date that does not exist is a ValueError.
        raise BrokenFiles(f"invalid YAML: {_first_line(exc)}") from exc
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrokenFiles("invalid YAML: expected a mapping")
    return {str(name): member for name, member in value.items()}


def _first_line(exc: Exception) -> str:
    mark = getattr(exc, "problem_mark", None)
    problem = getattr(exc, "problem", None) or str(exc)
    return problem if mark is None else f"{problem} in line {mark.line + 1}"
