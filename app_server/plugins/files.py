"""Reading what strangers wrote: bounded, and never outside of the folder it belongs to.

Everything here blocks: call it in a worker thread.
Source: docs/plugins.md, "Bounds".
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic_core import from_json

MAX_FILE_BYTES = 256 * 1024
"""Of a manifest, a marketplace, or another file with declarations."""


NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""Of a plugin or a marketplace."""


class BrokenFiles(Exception):
    """What is on disk cannot be used; the text says why, and clients may read it."""


def relative_path(text: object) -> PurePosixPath | None:
    """Return a path as manifests write it, `./…` without `..`; None for anything else."""
    if not isinstance(text, str) or not text.startswith("./"):
        return None
    path = PurePosixPath(text)
    return None if ".." in path.parts else path


def inside(root: Path, relative: PurePosixPath | str) -> Path:
    """Resolve a path below a folder, links included.

    Raises:
        BrokenFiles: it leads out of the folder, or nowhere.
    """
    try:
        resolved, folder = (root / relative).resolve(), root.resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        # A circle of links, or characters that no path has.
        raise BrokenFiles(f"`{relative}` is no usable path") from exc
    if not resolved.is_relative_to(folder):
        raise BrokenFiles(f"`{relative}` leads out of its folder")
    return resolved


def read_text(root: Path, relative: PurePosixPath | str) -> str | None:
    """Read a file below a folder; None if there is none.

    Raises:
        BrokenFiles: it leads out, is too large, is no file, is not UTF-8 or cannot be read.
    """
    path = inside(root, relative)
    name = PurePosixPath(relative).name
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise BrokenFiles(f"{name} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise BrokenFiles(f"failed to read {name}: {exc.strerror}") from exc
    if len(content) > MAX_FILE_BYTES:
        raise BrokenFiles(f"{name} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise BrokenFiles(f"{name} is not UTF-8") from exc


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
    """Return the texts of a list; of anything else none."""
    items = value if isinstance(value, list) else []
    return [text for item in items if (text := text_of(item)) is not None]
