"""Commands that are known to destroy, or to give others the machine. No I/O.

The list is for honest mistakes: whoever hides a command finds a way around it. What keeps commands
from doing harm is the sandbox.
Source: docs/tools.md, "Approvals and rules".
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from app_server.permissions.commands.wrappers import (
    RUNS_INLINE_CODE,
    base_name,
    layers,
)
from app_server.permissions.shell.options import option_names, sort_out
from app_server.permissions.shell.script import Command, Pipeline, Script

_DOWNLOADS = option_names("curl wget fetch aria2c http https")
_AS_ROOT = option_names("sudo doas su pkexec run0")
_ALWAYS = _AS_ROOT | option_names(
    "shred wipefs blkdiscard fdisk sfdisk gdisk sgdisk parted mkswap mkfs shutdown reboot halt "
    "poweroff insmod rmmod modprobe userdel"
)
_DEVICES = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|dm-|mem|kmem|port|loop)")
_ROOTS = re.compile(r"(/|~|/\*|~/\*?|\$HOME|/(etc|usr|bin|lib|var|boot|home|root)/?\*?)")


def danger_of(script: Script) -> str | None:
    """Return the danger of a script in a few words; None if it has no known one.

    Scripts that it has other shells run are part of it.
    """
    every = (_danger_of_one(part) for part in (script, *script.nested))
    return next((danger for danger in every if danger is not None), None)


def _danger_of_one(script: Script) -> str | None:
    if not script.is_read:
        return "it cannot be looked at"
    if script.forks:
        return "it starts itself without an end"
    if any(map(_DEVICES.match, script.writes)):
        return "it writes to a device"
    found = (danger for pipeline in script.mentioned for danger in _dangers(pipeline))
    return next(found, None)


def danger_of_words(words: Sequence[str]) -> str | None:
    """Return the danger of one command and of the command that it runs; None without one."""
    for layer in layers(tuple(words)):
        check = _CHECKS.get(base_name(layer[0]))
        if base_name(layer[0]) in _ALWAYS or layer[0].startswith("mkfs."):
            return f"it runs {PurePosixPath(layer[0]).name}"
        if check is not None and (danger := check(layer[1:])) is not None:
            return danger
    return None


def _dangers(pipeline: Pipeline) -> Iterator[str]:
    downloaded = False
    for command in pipeline.commands:
        danger = danger_of_words(command.texts)
        if danger is not None:
            yield danger
        put_in = any(_names(inner) & _DOWNLOADS for inner in command.inner)
        if (downloaded or put_in) and _runs_input(command):
            yield "it runs what it downloads"
        downloaded = downloaded or bool(_names(command) & _DOWNLOADS)


def _names(command: Command) -> set[str]:
    return {base_name(layer[0]) for layer in layers(command.texts)}


def _runs_input(command: Command) -> bool:
    """Whether a command executes its input or its arguments."""
    innermost = layers(command.texts)[-1]
    return base_name(innermost[0]) in RUNS_INLINE_CODE - {"awk", "gawk", "mawk"}


def _rm(arguments: Sequence[str]) -> str | None:
    given = sort_out(arguments)
    if given.has("-f", "--force", "-r", "-R", "--recursive"):
        return "it removes files without asking, or whole folders"
    return None


def _git(arguments: Sequence[str]) -> str | None:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        if rest.pop(0) in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") and rest:
            rest.pop(0)
    if not rest:
        return None
    given = sort_out(rest[1:])
    options = {name for name, _ in given.options}
    harmful = _GIT.get(rest[0])
    if harmful is not None and harmful & options:
        return f"it runs git {rest[0]} {sorted(harmful & options)[0]}"
    if rest[0] == "push" and any(ref.startswith(("+", ":")) for ref in given.operands[1:]):
        return "it overwrites or removes a branch of a remote repository"
    if rest[0] in ("checkout", "restore") and "." in given.operands:
        return "it throws changes away"
    if rest[:2] in (["stash", "clear"], ["stash", "drop"], ["reflog", "expire"]):
        return "it throws changes away"
    return f"it runs git {rest[0]}" if rest[0] in ("filter-branch", "filter-repo") else None


_GIT = {
    "reset": option_names("--hard --merge --keep"),
    "clean": option_names("-f --force -x -X"),
    "push": option_names("-f --force --force-with-lease --mirror --delete -d --prune"),
    "checkout": option_names("-f --force"),
    "switch": option_names("-f --force --discard-changes"),
    "branch": option_names("-D -M -C -f --force"),
    "tag": option_names("-d --delete -f --force"),
    "worktree": option_names("-f --force"),
    "gc": option_names("--prune"),
}


def _of_everything(arguments: Sequence[str]) -> str | None:
    given = sort_out(arguments)
    if given.has("-R", "--recursive") and any(map(_ROOTS.fullmatch, given.operands)):
        return "it changes who may use whole parts of the system"
    return None


def _moves(arguments: Sequence[str]) -> str | None:
    if any(map(_ROOTS.fullmatch, sort_out(arguments).operands[:-1])):
        return "it moves whole parts of the system"
    return None


_CHECKS: dict[str, Callable[[Sequence[str]], str | None]] = {
    "rm": _rm,
    "git": _git,
    "dd": lambda words: "it runs dd" if any(one.startswith("of=") for one in words) else None,
    "find": lambda words: "it removes what it finds" if "-delete" in words else None,
    "chmod": _of_everything,
    "chown": _of_everything,
    "chgrp": _of_everything,
    "kill": lambda words: "it ends every process" if "-1" in words[1:] else None,
    "mv": _moves,
    "crontab": lambda words: "it removes all timed commands" if "-r" in words else None,
}
