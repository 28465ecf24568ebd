"""Folders to search, and what is found in them."""

from pathlib import Path

from app_server.host.files.work import Stop
from app_server.host.search.listing import Tree


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def files_of(tree: Tree) -> list[str]:
    return sorted(prefix + name for prefix, names in tree.folders() for name in names)


def listed(root: Path, **bounds: int) -> list[str]:
    tree = Tree(root, **bounds)
    assert tree.refresh(Stop())
    return files_of(tree)
