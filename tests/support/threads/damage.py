"""What can happen to a file of SQLite, chosen at random and again by its seed."""

import random
from pathlib import Path

PAGE = 4096


def _some(chosen: random.Random, content: bytearray) -> int:
    return chosen.randrange(max(1, len(content)))


def _inserted(chosen: random.Random, content: bytearray) -> None:
    place = chosen.choice([min(PAGE, len(content)), _some(chosen, content)])
    content[place:place] = chosen.randbytes(7)


def _zeroed(chosen: random.Random, content: bytearray) -> None:
    place = _some(chosen, content) // PAGE * PAGE
    content[place : place + PAGE] = bytes(len(content[place : place + PAGE]))


def _cut(chosen: random.Random, content: bytearray) -> None:
    del content[_some(chosen, content) :]


def _swapped(chosen: random.Random, content: bytearray) -> None:
    """Swap two neighbours that differ: in a text, most often."""
    places = [
        place
        for place in (_some(chosen, content) for _ in range(400))
        if place + 1 < len(content) and content[place] != content[place + 1]
    ]
    for place in places[: chosen.choice([1, 1, 20])]:
        content[place], content[place + 1] = content[place + 1], content[place]


def _other_version(chosen: random.Random, content: bytearray) -> None:
    content[60:64] = chosen.randbytes(4)


def _noise(chosen: random.Random, content: bytearray) -> None:
    place = _some(chosen, content)
    content[place : place + 64] = chosen.randbytes(len(content[place : place + 64]))


_EDITS = {
    "inserted": _inserted,
    "zeroed": _zeroed,
    "cut": _cut,
    "swapped": _swapped,
    "noise": _noise,
    "other version": _other_version,
}
_OTHERS = ("wal", "shm", "directory", "unreadable", "missing")


def spoil(path: Path, seed: int) -> str:
    """Damage a file that nobody has open; returns how, in a word."""
    chosen = random.Random(seed)
    kind = chosen.choice([*_EDITS, *_EDITS, *_OTHERS])
    companion = path.with_name(f"{path.name}-{chosen.choice(['wal', 'shm'])}")
    if kind in _EDITS:
        content = bytearray(path.read_bytes())
        _EDITS[kind](chosen, content)
        path.write_bytes(content)
    match kind:
        case "wal" | "shm":
            path.with_name(f"{path.name}-{kind}").write_bytes(chosen.randbytes(40_000))
        case "directory":
            place = chosen.choice([path, companion])
            place.unlink(missing_ok=True)
            place.mkdir()
            (place / "kept").write_text("somebody's")
        case "unreadable":
            path.chmod(0)
        case "missing":
            path.unlink()
    return kind
