"""Which mounts a sandbox policy becomes, and the arguments of bubblewrap for them."""

import pytest

from app_server.host.sandbox.linux.sandbox import (
    FileSystemView,
    Kind,
    Mount,
    Show,
    arguments,
    mounts,
    shown_everywhere,
)
from app_server.permissions.sandbox.policy import EffectivePolicy

FOLDERS = {
    *("/home", "/home/u", "/home/u/.ssh", "/sys", "/tmp", "/tmp/project", "/usr"),
    *("/work", "/work/.git", "/work/a", "/work/a/b"),
}
FILES = {"/home/u/.netrc", "/work/key"}


def kind_of(path: str) -> Kind:
    return "folder" if path in FOLDERS else "other" if path in FILES else "missing"


def made(sandbox_policy: EffectivePolicy, cwd: str = "/work") -> list[tuple[str, Show, Kind]]:
    found = mounts(sandbox_policy, cwd, kind_of)
    return [(mount.path, mount.show, mount.kind) for mount in found]


@pytest.mark.parametrize(
    ("sandbox_policy", "root", "expected"),
    [
        (EffectivePolicy(network=False), "write", [("/sys", "read", "folder")]),
        (EffectivePolicy(writable=()), "read", []),
        (
            EffectivePolicy(writable=("/",), readable=()),
            "write",
            [("/sys", "read", "folder")],
        ),
        (EffectivePolicy(writable=(), readable=("/",)), "read", []),
        # What is around shows it in that way already.
        (
            EffectivePolicy(writable=(), readable=("/usr",)),
            "none",
            [("/usr", "read", "folder")],
        ),
        (EffectivePolicy(writable=(), protected=("/home/u",)), "read", []),
        # A root in another one is a mount too, and so is what is between them.
        (
            EffectivePolicy(writable=("/", "/work")),
            "write",
            [("/sys", "read", "folder"), ("/work", "write", "folder")],
        ),
        (
            EffectivePolicy(writable=("/work", "/work/a/b", "/work/no", "/work/key")),
            "read",
            [(path, "write", "folder") for path in ("/work", "/work/a", "/work/a/b")],
        ),
        # Nothing is there to be protected in a folder that is missing.
        (
            EffectivePolicy(writable=("/work",), protected=("/work/no/.git", "/work/no/sub/.git")),
            "read",
            [("/work", "write", "folder")],
        ),
        # What is missing is protected where it could be made, and is else no matter.
        (
            EffectivePolicy(
                writable=("/work",),
                protected=("/work/.git", "/work/.codex", "/home/.git"),
                denied=("/work/key", "/work/nothing", "/home/u/.ssh", "/home/u/.netrc"),
            ),
            "read",
            [
                ("/work", "write", "folder"),
                ("/work/.codex", "read", "missing"),
                ("/work/.git", "read", "folder"),
                ("/work/key", "none", "other"),
                ("/home/u/.netrc", "none", "other"),
                ("/home/u/.ssh", "none", "folder"),
            ],
        ),
    ],
)
def test_only_what_differs_is_mounted(
    sandbox_policy: EffectivePolicy, root: Show, expected: list[tuple[str, Show, Kind]]
) -> None:
    assert shown_everywhere(sandbox_policy) == root
    assert sorted(made(sandbox_policy)) == sorted(expected)


def test_what_is_between_a_root_and_what_is_protected_in_it_is_mounted_too() -> None:
    deep = EffectivePolicy(
        writable=("/work",), protected=("/work/a/b/.git",), denied=("/work/a/key",)
    )
    found = mounts(deep, "/work", lambda path: "other" if path.endswith("key") else "folder")
    assert [(mount.path, mount.show) for mount in found] == [
        ("/work", "write"),
        ("/work/a", "write"),
        ("/work/a/b", "write"),
        ("/work/a/key", "none"),
        ("/work/a/b/.git", "read"),
    ]
    everywhere = EffectivePolicy(protected=("/home/u/.server",))
    assert made(everywhere) == [
        ("/home", "write", "folder"),
        ("/sys", "read", "folder"),
        ("/home/u", "write", "folder"),
        ("/home/u/.server", "read", "missing"),
    ]


def test_an_empty_folder_shows_what_is_named_in_it_and_what_is_worked_in() -> None:
    sandbox_policy = EffectivePolicy(writable=(), denied=("/tmp/agent",), scratch=("/tmp",))
    assert made(sandbox_policy) == [("/tmp", "empty", "folder")]
    assert made(sandbox_policy, "/tmp/project") == [
        ("/tmp", "empty", "folder"),
        ("/tmp/project", "read", "folder"),
    ]
    assert made(sandbox_policy, "/tmp") == [("/tmp", "empty", "folder")]


def test_the_command_line() -> None:
    sandbox_policy = EffectivePolicy(writable=(), network=False)
    places = [
        Mount("/work", "write", "folder"),
        Mount("/tmp", "empty", "folder"),
        Mount("/work/.git", "read", "folder"),
        Mount("/home/u/file", "read", "other"),
        Mount("/keys", "none", "folder"),
        Mount("/key", "none", "other"),
    ]
    opened = {"/work": 5, "/work/.git": 6}
    line = arguments(
        "bwrap",
        FileSystemView(places, opened),
        "/work",
        sandbox_policy,
        seccomp_fd=9,
        has_terminal=False,
    )
    assert " ".join(line) == (
        "bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-net"
        " --setenv CODEX_SANDBOX_NETWORK_DISABLED 1"
        " --die-with-parent --new-session --cap-drop ALL --ro-bind / /"
        " --dev /dev --size 536870912 --tmpfs /dev/shm --proc /proc"
        " --bind-fd 5 /work --size 1073741824 --perms 1777 --tmpfs /tmp --ro-bind-fd 6 /work/.git"
        " --ro-bind-try /home/u/file /home/u/file"
        " --perms 0555 --tmpfs /keys --ro-bind /dev/null /key"
        " --remount-ro /dev --remount-ro /proc --remount-ro /keys"
        " --seccomp 9 --chdir /work --"
    )
    nothing = EffectivePolicy(readable=(), writable=())
    line = arguments("bwrap", FileSystemView([]), "/", nothing, seccomp_fd=9, has_terminal=True)
    assert " ".join(line) == (
        "bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts"
        " --die-with-parent --cap-drop ALL --tmpfs /"
        " --dev /dev --size 536870912 --tmpfs /dev/shm --proc /proc"
        " --remount-ro /dev --remount-ro /proc --remount-ro /"
        " --seccomp 9 --chdir / --"
    )
