"""Rollouts of Codex in a home."""

import json
from pathlib import Path
from typing import Any

from tests.support.paths import RECORDINGS

RECORDED = RECORDINGS / "codex_home"
TOOLS = "01a1fd6d-4967-7683-b25e-22ab45e1238a"
ARCHIVED = "01a1fd6d-4bd4-72f0-9058-337768b0d499"
OLD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
TURNS: dict[str, Any] = json.loads((RECORDED / "turns.json").read_text())
"""What Codex itself answers to `thread/read` for four of them."""


def rollouts(home: Path) -> dict[Path, tuple[bytes, int]]:
    """Return everything of Codex below a home: bytes and times."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for folder in ("sessions", "archived_sessions")
        for path in (home / folder).rglob("*.jsonl")
    }


def write_rollout(home: Path, thread_id: str, *lines: tuple[str, dict[str, Any]]) -> Path:
    """Write a rollout in the form of older versions; a line a second."""
    path = home / "sessions/2025/10/01" / f"rollout-2025-10-01T00-00-00-{thread_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"id": thread_id, "timestamp": "2025-10-01T00:00:00Z", "cwd": "/old"}
    meta |= {"originator": "codex_cli_rs", "cli_version": "0.42.0", "source": "cli"}
    all_lines = [("session_meta", meta), *lines]
    path.write_text(
        "".join(
            json.dumps(
                {"timestamp": f"2025-10-01T00:00:{at:02}.000Z", "type": kind, "payload": payload}
            )
            + "\n"
            for at, (kind, payload) in enumerate(all_lines)
        )
    )
    return path


def event(kind: str, **members: Any) -> tuple[str, dict[str, Any]]:
    return "event_msg", {"type": kind, **members}


def message_item(text: str, role: str = "user") -> tuple[str, dict[str, Any]]:
    content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
    return "response_item", {"type": "message", "role": role, "content": content}
