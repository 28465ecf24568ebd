"""Members of files of plugins and marketplaces: names, relative paths, JSON objects.

Everything here blocks: call it in a worker thread.
Source: docs/plugins.md, "Bounds".
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic_core import from_json

from app_server.runtime.files.opening import BrokenFiles, read_text

NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""Of a plugin or a marketplace."""


def relative_path(text: object) -> PurePosixPath | None:
    """Return a path in the form of manifests, `./…` without `..`; None for any other value."""
    if not isinstance(text, str) or not text.startswith("./"):
        return None
    path = PurePosixPath(text)
    return None if ".." in path.parts else path


def read_object(root: Path, relative: PurePosixPath | str) -> dict[str, Any] | None:
    """Read a file with one JSON object; None if there is none.

    Raises:
        BrokenFiles: see `read_text`; or it is no JSON, or another value.
    """
    text = read_text(root, relative)
    if text is None:
        return None
    name = PurePosixPath(relative).name
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        raise BrokenFiles(f"failed to parse {name}: {exc}") from exc
    if not isinstance(value, dict):
        raise BrokenFiles(f"failed to parse {name}: expected an object")
    return value


def text_of(value: object) -> str | None:
    """Return a text without blanks around it; None for an empty one or another type."""
    return (value.strip() or None) if isinstance(value, str) else None


def texts_of(value: object) -> list[str]:
    """Return the strings of a list; none for any other value."""
    items = value if isinstance(value, list) else []
    return [text for item in items if (text := text_of(item)) is not None]
