"""The conversations about patches."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.interop.tools.scenarios import Item, Scenario, command, function, patch

READ, WRITE, FULL = "read-only", "workspace-write", "danger-full-access"

ADD = patch("*** Add File: new.txt", "+one", "+two")
EDIT = patch("*** Update File: a.txt", "@@", "-hello", "+goodbye")

TWICE = "def f\na\nx\ndef f\nb\nx\n"

PROGRAM = "`apply_patch` is no program here"


def one(name: str, *lines: str, **options: Any) -> Scenario:
    """Make a turn with one patch, in a folder that may be written."""
    model = options.pop("model", "gpt-5.5")
    sandbox, policy = options.pop("sandbox", WRITE), options.pop("policy", "on-request")
    calls = options.pop("calls", [patch(*lines)])
    return Scenario(f"patch-{name}", sandbox, policy, calls, model=model, **options)


def several(name: str, *calls: Item, **options: Any) -> Scenario:
    """Make a turn for each of several calls."""
    return one(name, calls=list(calls), **options)


def heredoc(name: str, script: str, **options: Any) -> Scenario:
    """Make a turn with one command."""
    return several(name, command(script, login=False), model="mock-model", **options)


def with_file(name: str, text: str) -> Mapping[str, str]:
    """Add a file to the usual one."""
    return {"a.txt": "hello\n", name: text}


def _changes() -> list[Scenario]:
    return [
        several("add", ADD),
        several("edit", EDIT),
        one("delete", "*** Delete File: a.txt"),
        one("move", "*** Update File: a.txt", "*** Move to: b.txt", "@@", "-hello", "+goodbye"),
        one(
            "move-over",
            "*** Update File: a.txt",
            "*** Move to: b.txt",
            "@@",
            "-hello",
            "+goodbye",
            files=with_file("b.txt", "other\n"),
        ),
        one(
            "move-alone",
            "*** Update File: a.txt",
            "*** Move to: b.txt",
            reason="a file may get another name and nothing else",
        ),
        one("add-over", "*** Add File: a.txt", "+x"),
        one("add-empty", "*** Add File: empty.txt"),
        one("add-in-folder", "*** Add File: new/er/file.txt", "+x"),
        one(
            "several-files",
            "*** Add File: z.txt",
            "+1",
            "*** Update File: a.txt",
            "@@",
            "-hello",
            "+bye",
            "*** Delete File: d.txt",
            files=with_file("d.txt", "del\n"),
        ),
        one("no-change", "*** Update File: a.txt", "@@", "-hello", "+hello"),
        several("there-and-back", EDIT, patch("*** Update File: a.txt", "-goodbye", "+hello")),
        one(
            "contexts-far-apart",
            *("*** Update File: n.txt", "@@", "-5", "+five", "@@", "-40", "+forty"),
            files=with_file("n.txt", "".join(f"{number}\n" for number in range(50))),
        ),
    ]


def _matching() -> list[Scenario]:
    lines = ("*** Update File: g.txt", "@@")

    def in_file(name: str, text: str, *rest: str, **options: Any) -> Scenario:
        return one(name, *lines, *rest, files=with_file("g.txt", text), **options)

    return [
        in_file("loose", '  "x" - y  \nq\n', "-\u201cx\u201d \u2013 y", "+z"),
        in_file("loose-context", "  a  \nb\n\tc\n", " a", "-b", "+B", " c"),
        in_file("end-of-file", "x\na\nx\n", "-x", "+y", "*** End of File"),
        in_file("only-adds", "x\na\n", "+y"),
        in_file("empty-line", "a\n\nb\n", " a", "", "-b", "+B"),
        in_file("empty-line-too-much", "a\nb\n", "-b", "+B", " "),
        in_file("windows", "one\r\ntwo\r\n", " one", "-two", "+TWO"),
        in_file("no-newline", "one\ntwo", "-two", "+TWO", reason="there is none afterwards either"),
        one(
            "ambiguous",
            *("*** Update File: g.txt", "@@ def f", "-x", "+y"),
            files=with_file("g.txt", TWICE),
            reason="a context that is there twice is an error",
        ),
        one(
            "nested-contexts",
            *("*** Update File: g.txt", "@@ b", "@@ x", "+y"),
            files=with_file("g.txt", TWICE),
            reason="several contexts may follow each other",
        ),
        one(
            "adds-behind-context",
            *("*** Update File: g.txt", "@@ b", "+y"),
            files=with_file("g.txt", TWICE),
            reason="it goes behind the context, not to the end of the file",
        ),
        one("unmatched", "*** Update File: a.txt", "@@", "-no such line", "+goodbye"),
        one("unmatched-context", "*** Update File: a.txt", "@@ def f", "-hello", "+goodbye"),
        one(
            "unmatched-second",
            *("*** Add File: q.txt", "+1", "*** Update File: a.txt", "-nothere"),
        ),
        one("missing-file", "*** Update File: none.txt", "-a", "+b"),
        one("missing-deleted", "*** Delete File: none.txt"),
        one("twice", *("*** Update File: a.txt", "-hello", "+x", "*** Delete File: a.txt")),
        several("garbage", {**ADD, "input": "no patch"}),
        one("unknown-header", "*** Frobnicate: x"),
        one("no-hunk", "*** Update File: a.txt"),
        one("bad-line", "*** Update File: a.txt", "@@", "xhello"),
        one("empty"),
        one("environment", "*** Environment ID: local", "*** Add File: e.txt", "+x"),
    ]


def _approvals() -> list[Scenario]:
    outside = "*** Add File: ../outside-of-the-roots.txt"
    return [
        *(
            several(f"readonly-{answer}", ADD, sandbox=READ, answer=answer)
            for answer in ("accept", "decline", "acceptForSession")
        ),
        several(
            "readonly-cancel",
            ADD,
            sandbox=READ,
            answer="cancel",
            reason="the item ends, as declined; in Codex it stays in progress",
        ),
        several("readonly-never", ADD, sandbox=READ, policy="never"),
        *(
            several(f"untrusted-{answer}", ADD, policy="untrusted", answer=answer)
            for answer in ("accept", "decline", "acceptForSession")
        ),
        several("untrusted-full-access", ADD, policy="untrusted", sandbox=FULL),
        one("outside-accept", outside, "+x"),
        one("outside-decline", outside, "+x", answer="decline"),
        one("outside-never", outside, "+x", policy="never"),
        one("outside-full-access", outside, "+x", sandbox=FULL),
        one("git-folder", "*** Add File: .git/hooks/x", "+x", answer="decline"),
        several(
            "for-session",
            ADD,
            patch("*** Update File: new.txt", "@@", "-one", "+uno"),
            patch("*** Add File: other.txt", "+x"),
            sandbox=READ,
            answer="acceptForSession",
        ),
    ]


def _in_commands() -> list[Scenario]:
    text = f"<<'EOF'\n{ADD['input']}\nEOF"
    missing = patch("*** Update File: a.txt", "-nothere")["input"]
    return [
        several(
            "function",
            function("apply_patch", input=ADD["input"]),
            model="mock-model",
            reason="models without freeform tools have a function",
        ),
        heredoc("heredoc", f"apply_patch {text}"),
        heredoc("heredoc-other-name", f"applypatch {text}\n"),
        heredoc("heredoc-cd", f"cd .. && cd . && apply_patch {text}", reason=PROGRAM),
        heredoc("heredoc-cd-once", f"cd 'sub dir' && apply_patch {text}"),
        heredoc("heredoc-unmatched", f"apply_patch <<'EOF'\n{missing}\nEOF"),
        heredoc("heredoc-garbage", "apply_patch <<'EOF'\nbogus\nEOF"),
        heredoc("heredoc-piped", f"cat {text[:7]} | apply_patch{text[7:]}", reason=PROGRAM),
        heredoc("heredoc-readonly-accept", f"apply_patch {text}", sandbox=READ),
        heredoc("heredoc-readonly-decline", f"apply_patch {text}", sandbox=READ, answer="decline"),
    ]


PATCHES: Sequence[Scenario] = (*_changes(), *_matching(), *_approvals(), *_in_commands())
