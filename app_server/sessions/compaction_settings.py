"""What the model is asked to sum up when a thread is compacted.

Source: docs/config.md, "Models".
"""

from pathlib import Path

import anyio.to_thread

from app_server.config.values import ConfigError, ConfigView
from app_server.runtime.user_paths import expand_user

MAX_PROMPT_BYTES = 64 * 1024

FILE_KEY = "experimental_compact_prompt_file"


async def read_compact_prompt(view: ConfigView) -> str | None:
    """Read the user's own instructions for summaries: a text, else a file; None means ours.

    Raises:
        ConfigError: the file cannot be read, is blank, or is larger than MAX_PROMPT_BYTES.
    """
    text = (view.string("compact_prompt") or "").strip()
    path = view.string(FILE_KEY)
    if text or path is None:
        return text or None
    return await anyio.to_thread.run_sync(_read, view, Path(path))


def _read(view: ConfigView, path: Path) -> str:
    source = view.config.source
    file = expand_user(path) if source is None else source.parent / expand_user(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_PROMPT_BYTES + 1)
        text = content.decode().strip()
    except OSError as exc:
        raise _problem(view, file, f"cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise _problem(view, file, "is not UTF-8") from exc
    except ValueError as exc:
        # A path with a null character.
        raise _problem(view, file, f"cannot be read: {exc}") from exc
    if len(content) > MAX_PROMPT_BYTES:
        raise _problem(view, file, f"is larger than {MAX_PROMPT_BYTES} bytes")
    if not text:
        raise _problem(view, file, "is empty")
    return text


def _problem(view: ConfigView, file: Path, what: str) -> ConfigError:
    return view.error(f"experimental compact prompt file {file} {what}", FILE_KEY)
