"""Generated files on disk: written as a whole, or compared with what is there."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from protocol.export.contract import load_contract
from protocol.export.json_schema import render_bundle_files, render_json_schema
from protocol.export.typescript import render_module, render_typescript

Files: TypeAlias = Mapping[str, str]
"""Path, relative and with slashes, to text."""

VARIANTS = {"stable": False, "experimental": True}
TS_BUNDLE = "app_server_protocol.ts"


def render_json(*, experimental: bool) -> Files:
    """Render the JSON Schema files of one variant."""
    return render_json_schema(load_contract(experimental=experimental))


def render_ts(*, experimental: bool) -> Files:
    """Render the TypeScript files of one variant."""
    return render_typescript(load_contract(experimental=experimental))


def render_bundles() -> dict[str, str]:
    """Render what is committed: the bundles of both languages, a folder for each variant.

    They hold everything that the files of single types hold, once, so a change shows once.
    """
    files: dict[str, str] = {}
    for variant, experimental in VARIANTS.items():
        contract = load_contract(experimental=experimental)
        files[f"{variant}/{TS_BUNDLE}"] = render_module(contract)
        for name, text in render_bundle_files(contract).items():
            files[f"{variant}/{name}"] = text
    return files


def write_files(folder: Path, files: Files) -> None:
    """Write files into a folder, which is made; other files there stay.

    Raises:
        OSError: the disk refused.
    """
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


def replace_files(folder: Path, files: Files) -> None:
    """Make the generated folders hold these files and nothing else.

    Raises:
        OSError: the disk refused.
    """
    for top in {path.split("/", 1)[0] for path in files}:
        shutil.rmtree(folder / top, ignore_errors=True)
    write_files(folder, files)


def differences(folder: Path, files: Files) -> Iterator[str]:
    """Tell what in the generated folders is missing, too much or not as it would be written."""
    tops = sorted({path.split("/", 1)[0] for path in files})
    there = {
        path.relative_to(folder).as_posix(): path
        for top in tops
        for path in [folder / top, *(folder / top).rglob("*")]
        if path.is_file()
    }
    for name in sorted(files.keys() | there.keys()):
        if name not in there:
            yield f"missing: {name}"
        elif name not in files:
            yield f"not generated: {name}"
        elif there[name].read_text(encoding="utf-8") != files[name]:
            yield f"differs: {name}"
