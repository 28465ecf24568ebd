"""Plant errors in the code of a room, and say which of them the tests of that room do not find.

ROOM is a folder or a file below `app_server`, such as `patch` or `mcp_wire/http`. Its tests are
those in `tests/ROOM`, or in the nearest folder above that has tests: `tests/mcp_wire`. The tests
of other rooms are not run, as what a room promises is tested there.

One error at a time: a comparison turned (`<` to `<=`, `==` to `!=`, `in` to `not in`), a condition
negated, a statement dropped, or 1 added to a constant. `errors.py` says what is left out. COUNT of
them are chosen by SEED; the same seed chooses the same ones as long as the code is the same.

The tests run once without an error, to learn which of them run which line, and for how long. Then
each error is met by the tests that run its line, the quickest first, until one of them fails or
hangs. They run in a process that is forked after the tests were collected. An error in a line that
runs while modules are imported is met in a Python of its own, which imports the module with it.

Nothing is written to the working tree: errors are planted while a module is imported, also in the
processes that a test starts, unless it takes PYTHONPATH from them. Each error has a session, limits
of processor time, memory and file size, and a time limit; all its processes are killed at its end.

What it prints of an error that lives:

    app_server/patch/plan.py:101: comparison: ... == '' -> ... != '' (by 36 tests)

`by no test` means that no test runs that line. An error that lives asks for a test of what the line
is for, or for the removal of a line that nobody needs. Some are no errors: the changed code does
the same. The exit status is 0 if at least PERCENT were caught, else 1. Linux only.
"""

import argparse
import ast
import contextlib
import ctypes
import gc
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import FunctionType
from typing import Any

import coverage
import pytest

from tests.planted.errors import PlantedError, errors_in, planted
from tests.planted.importing import (
    HOOK,
    PLANTED,
    ROOT,
    Finder,
    caches,
    change_functions,
    functions_of,
)

CAUGHT, LIVED, HUNG, NOT_POSSIBLE = 1, 0, 3, 4
PROCESSOR_S = 120
MEMORY_BYTES = 8 * 1024**3
FILE_BYTES = 4 * 1024**3
LONGEST_TEST = 10
"""A test hangs if it takes so many seconds, and so many times as long as without an error."""
LONGEST_START_S = 90
"""Of a Python of its own, until its first test."""
PR_SET_CHILD_SUBREAPER = 36

TESTS = "PLANTED_TESTS"
REPORTS = "PLANTED_REPORTS"
CONTEXT = "PLANTED_CONTEXT"


@dataclass(frozen=True, slots=True)
class Chosen:
    """An error of the run."""

    file: str
    """From the root of the repository."""
    number: int
    error: PlantedError

    @property
    def name(self) -> str:
        """As in the environment of a Python that has the error."""
        return f"{self.file}:{self.number}"

    def shown(self) -> str:
        """As it is printed: its place, its kind, and what is changed."""
        source = (ROOT / self.file).read_text()
        _, change = planted(source, self.number)
        line = getattr(self.error.node, "lineno", self.error.lines.start)
        if self.error.kind == "constant":
            change += f" in {source.splitlines()[line - 1].strip()}"
        return f"{self.file}:{line}: {self.error.kind}: {change}"


def chosen_errors(room: str, count: int, seed: int) -> list[Chosen]:
    """Choose errors of a room, in the order of files and lines."""
    place = ROOT / "app_server" / room
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    everything = [
        Chosen(str(file.relative_to(ROOT)), number, error)
        for file in files
        for number, error in enumerate(errors_in(ast.parse(file.read_text())))
    ]
    numbers = random.Random(seed).sample(range(len(everything)), min(count, len(everything)))
    return [everything[number] for number in sorted(numbers)]


def tests_of(room: str) -> Path:
    """Return the folder of a room's tests."""
    folder = ROOT / "tests" / room
    while not any(folder.glob("test_*.py")) and folder.parent != ROOT / "tests":
        folder = folder.parent
    return folder


class Reporter:
    """The plug-in of pytest in a process that runs tests: it ends with the first one that fails."""

    def __init__(self, reports: int, names: Sequence[str]) -> None:
        self._reports = reports
        self._order = {name: at for at, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that were asked for, in that order."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order),
            key=lambda item: self._order[item.nodeid],
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins."""
        os.write(self._reports, f"{self._order[nodeid]}\n".encode())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End the process."""
        if report.failed:
            os._exit(CAUGHT)


def run_tests(items: Iterable[pytest.Item]) -> None:
    """Run collected tests in this process."""
    todo = list(items)
    for item, following in zip(todo, [*todo[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class Supervised:
    """A process with limits that runs tests, and one above it that kills all that it leaves."""

    def __init__(self, folder: Path, lifeline: tuple[int, int]) -> None:
        """Use a folder; `lifeline` is a pipe whose other end is closed when the run ends."""
        self.folder = folder
        self.pid = 0
        self._lifeline = lifeline

    def start(self, work: Any, limits_s: Sequence[float], first_s: float) -> None:
        """Fork. `work` is called with a descriptor for reports; `limits_s` are of each test."""
        self.folder.mkdir()
        self.pid = os.fork()
        if self.pid == 0:
            status = NOT_POSSIBLE
            try:
                status = self._supervise(work, limits_s, first_s)
            finally:
                os._exit(status)

    def _supervise(self, work: Any, limits_s: Sequence[float], first_s: float) -> int:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.close(self._lifeline[1])
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = CAUGHT
            try:
                os.close(reading)
                os.close(self._lifeline[0])
                self._limit()
                work(writing)
                status = LIVED
            finally:
                os._exit(status)
        os.close(writing)
        status = self._watch(child, reading, limits_s, first_s)
        _kill_children()
        return status

    def _watch(self, child: int, reading: int, limits_s: Sequence[float], first_s: float) -> int:
        """Return how the tests of a process ended, HUNG if one of them takes too long."""
        ends = time.monotonic() + first_s
        while True:
            left_s = max(ends - time.monotonic(), 0)
            ready, _, _ = select.select([reading, self._lifeline[0]], [], [], left_s)
            if reading not in ready:
                return HUNG
            begun = os.read(reading, 65536).split()
            if not begun:
                break
            ends = time.monotonic() + limits_s[int(begun[-1])]
        # The pipe is closed as the process ends, or by a test that closes what is not its own.
        while time.monotonic() < ends:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code in (LIVED, NOT_POSSIBLE) else CAUGHT
            time.sleep(0.01)
        return HUNG

    def _limit(self) -> None:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(silent, descriptor)
        for limit, value in (
            (resource.RLIMIT_CPU, PROCESSOR_S),
            (resource.RLIMIT_AS, MEMORY_BYTES),
            (resource.RLIMIT_FSIZE, FILE_BYTES),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(limit, (value, value))
        home = self.folder / "home"
        home.mkdir()
        paths = [str(HOOK), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ.update(
            HOME=str(home),
            PYTEST_DEBUG_TEMPROOT=str(self.folder),
            PYTHONPATH=os.pathsep.join(paths),
        )


def _kill_children() -> None:
    """Kill all processes below this one; whatever loses its parent becomes a child of this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in map(int, children.read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Planter:
    """The plug-in of pytest that plants errors, once the tests of the room are collected."""

    def __init__(self, options: argparse.Namespace, errors: list[Chosen], folder: Path) -> None:
        self._options = options
        self._errors = errors
        self._folder = folder
        self._sources = sorted({str(ROOT / error.file) for error in errors})
        self._items: dict[str, pytest.Item] = {}
        self._seconds: dict[str, float] = {}
        self._tests: dict[str, dict[int, set[str]]] = {}
        self._results: dict[int, int] = {}
        self._lifeline = os.pipe()
        self._functions: dict[str, list[FunctionType]] = {}
        self._cached: list[Any] = []
        self._imports: coverage.Coverage | None = None
        self.percent = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Note the lines that run while modules are imported: what they made is there already."""
        self._imports = self._watch("imports")
        self._imports.start()

    def _watch(self, name: str) -> coverage.Coverage:
        file = self._folder / f"{name}.coverage"
        return coverage.Coverage(file, config_file=False, include=self._sources)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Plant all errors instead of running the tests."""
        if session.testsfailed:
            raise session.Failed("the tests cannot be collected")
        self._items = {item.nodeid: item for item in session.items}
        assert self._imports is not None
        self._imports.stop()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
            self._imports.get_data()
        self._functions = functions_of({error.file for error in self._errors})
        self._cached = caches()
        # As pytest's plug-in had it: forks share what is not collected.
        gc.freeze()
        self._learn()
        _print(f"{len(self._seconds)} tests in {sum(self._seconds.values()):.0f} s")
        self._plant_all()
        self._print_result()
        return True

    # How long each test takes, and which lines it runs.

    def _learn(self) -> None:
        folder = self._folder / "lines"
        one = Supervised(self._folder / "first", self._lifeline)
        one.start(lambda reports: self._run_watched(folder, reports), [600.0], 600.0)
        _, status = os.waitpid(one.pid, 0)
        if os.waitstatus_to_exitcode(status) != LIVED:
            raise pytest.UsageError("the tests do not end without an error")
        self._read(folder)
        shutil.rmtree(one.folder)

    def _run_watched(self, folder: Path, reports: int) -> None:
        folder.mkdir()
        settings = folder / "coveragerc"
        settings.write_text(
            f"[run]\ndata_file = {folder}/data\nparallel = true\nsigterm = true\n"
            f"context = ${{{CONTEXT}-}}\ninclude =\n"
            + "".join(f"    {one}\n" for one in self._sources)
        )
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        watch = self._watch("tests")
        watch.start()
        seconds: dict[str, float] = {}
        failed: set[str] = set()
        for item in self._items.values():
            reporter = _Failures(failed)
            item.config.pluginmanager.register(reporter)
            os.environ[CONTEXT] = item.nodeid.replace("$", "$$")
            watch.switch_context(item.nodeid)
            os.write(reports, b"0\n")
            for cached in self._cached:
                # What another test has put there would hide that this one runs the lines.
                cached.cache_clear()
            began = time.monotonic()
            run_tests([item])
            seconds[item.nodeid] = time.monotonic() - began
            item.config.pluginmanager.unregister(reporter)
        with warnings.catch_warnings():
            # Perhaps no test runs any of the lines.
            warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
            watch.stop()
            watch.save()
        (folder / "seconds").write_text(json.dumps(seconds))
        (folder / "failed").write_text(json.dumps(sorted(failed)))

    def _read(self, folder: Path) -> None:
        failed = json.loads((folder / "failed").read_text())
        for name in failed:
            _print(f"left out, as it fails without an error: {name}")
        seconds = json.loads((folder / "seconds").read_text())
        self._seconds = {name: seconds[name] for name in seconds if name not in failed}
        for path in [self._folder / "tests.coverage", *folder.glob("data*")]:
            data = coverage.CoverageData(str(path))
            with contextlib.suppress(coverage.CoverageException):
                data.read()
                for file in data.measured_files():
                    lines = self._tests.setdefault(str(Path(file).relative_to(ROOT)), {})
                    for line, contexts in data.contexts_by_lineno(file).items():
                        lines.setdefault(line, set()).update(self._seconds.keys() & contexts)

    # One error.

    def _tests_for(self, chosen: Chosen) -> list[str]:
        """Return the tests that may find an error, the quickest first."""
        lines = self._tests.get(chosen.file, {})
        if chosen.error.in_function:
            found = set[str]().union(*(lines.get(line, ()) for line in chosen.error.lines))
        else:
            # Any test of the room may look at a constant.
            found = set(self._seconds)
        quickest = sorted(found, key=lambda name: (self._seconds[name], name))
        ends = accumulate(self._seconds[name] for name in quickest)
        within = [
            name for name, end in zip(quickest, ends, strict=True) if end < self._options.most
        ]
        return within or quickest[:1]

    def _start(self, number: int, fresh: bool) -> Supervised:
        chosen = self._errors[number]
        names = self._tests_for(chosen)

        def quickly(reports: int) -> None:
            if not change_functions(self._functions[chosen.file], chosen.file, chosen.number):
                os._exit(NOT_POSSIBLE)
            os.environ[PLANTED] = chosen.name
            sys.meta_path.insert(0, Finder(chosen.name))
            items = [self._items[name] for name in names]
            items[0].config.pluginmanager.register(Reporter(reports, names))
            run_tests(items)

        def freshly(reports: int) -> None:
            os.set_inheritable(reports, True)
            order = one.folder / "tests"
            order.write_text(json.dumps(names))
            os.environ.update({PLANTED: chosen.name, TESTS: str(order), REPORTS: str(reports)})
            files = sorted({str(ROOT / name.partition("::")[0]) for name in names})
            words = [sys.executable, "-m", "tests.planted", "--tests-of-one", *files]
            os.chdir(ROOT)
            os.execv(sys.executable, words)  # noqa: S606 - this Python

        one = Supervised(self._folder / f"{number}{'f' if fresh else ''}", self._lifeline)
        limits_s = [LONGEST_TEST * (1 + self._seconds[name]) for name in names]
        first_s = LONGEST_START_S if fresh else LONGEST_TEST
        one.start(freshly if fresh else quickly, limits_s, first_s)
        return one

    def _ran(self, number: int) -> bool:
        """Whether the line ran while modules were imported."""
        assert self._imports is not None
        chosen = self._errors[number]
        lines = self._imports.get_data().lines(str(ROOT / chosen.file)) or []
        return not set(lines).isdisjoint(chosen.error.lines)

    def _plant_all(self) -> None:
        todo = [
            (number, not chosen.error.in_function)
            for number, chosen in enumerate(self._errors)
            if self._tests_for(chosen)
        ]
        todo.reverse()
        running: dict[int, tuple[int, bool, Supervised]] = {}
        while todo or running:
            while todo and len(running) < self._options.workers:
                number, fresh = todo.pop()
                one = self._start(number, fresh)
                running[one.pid] = (number, fresh, one)
            pid, status = os.waitpid(-1, 0)
            number, fresh, one = running.pop(pid)
            shutil.rmtree(one.folder, ignore_errors=True)
            outcome = os.waitstatus_to_exitcode(status)
            if not fresh and (outcome == NOT_POSSIBLE or (outcome == LIVED and self._ran(number))):
                todo.append((number, True))
                continue
            self._results[number] = outcome
            if outcome not in (CAUGHT, HUNG):
                self._print_living(number)
            if len(self._results) % 20 == 0:
                print(f"{len(self._results)} of {len(self._errors)}", file=sys.stderr, flush=True)
        for number in range(len(self._errors)):
            if number not in self._results:
                self._results[number] = LIVED
                self._print_living(number)

    def _print_living(self, number: int) -> None:
        chosen = self._errors[number]
        tests = len(self._tests_for(chosen)) or "no"
        noun = "test" if tests in (1, "no") else "tests"
        _print(f"{chosen.shown()} (by {tests} {noun})")

    def _print_result(self) -> None:
        outcomes = list(self._results.values())
        caught = sum(outcome in (CAUGHT, HUNG) for outcome in outcomes)
        self.percent = 100 * caught / max(len(outcomes), 1)
        _print(
            f"{self._options.room}: {caught} of {len(outcomes)} errors caught"
            f" ({self.percent:.1f} %), {outcomes.count(HUNG)} of them as a test hung;"
            f" seed {self._options.seed}"
        )


class _Failures:
    """The names of tests that fail."""

    def __init__(self, failed: set[str]) -> None:
        self._failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the name."""
        if report.failed:
            self._failed.add(report.nodeid)


def _without_lines(printed: str) -> set[str]:
    """Return the errors of an output without the numbers of their lines, which change."""
    lines = re.findall(r"^(\S+?):\d+: (\w+: .*? -> .*?)(?: \(by \w+ tests?\))?$", printed, re.M)
    return {f"{file}: {change}" for file, change in lines}


def _print(words: str) -> None:
    print(words, flush=True)


def _pytest(arguments: Sequence[str], seed: int, plugin: object) -> int:
    own = ["-q", "-s", "-p", "no:cacheprovider", "--no-header", f"--hypothesis-seed={seed}"]
    return int(pytest.main([*own, *arguments], plugins=[plugin]))


def main() -> int:
    """Run the command line."""
    if sys.argv[1:2] == ["--tests-of-one"]:
        names = json.loads(Path(os.environ[TESTS]).read_text())
        return _pytest(sys.argv[2:], 0, Reporter(int(os.environ[REPORTS]), names))
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("room", metavar="ROOM")
    parser.add_argument("--count", type=int, default=200, help="how many errors (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which errors (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (%(default)s)")
    parser.add_argument(
        "--most",
        type=float,
        default=30,
        metavar="SECONDS",
        help="how long the tests of one error may take, the quickest first (%(default)s)",
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="plant those errors alone that an earlier run printed into FILE, instead of COUNT",
    )
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", help="run these, and not all tests of the room"
    )
    parser.add_argument("--floor", type=float, default=95, metavar="PERCENT")
    options = parser.parse_args()
    if options.again is None:
        errors = chosen_errors(options.room, options.count, options.seed)
    else:
        lived = _without_lines(options.again.read_text())
        files = {one.partition(": ")[0] for one in lived}
        everything = chosen_errors(options.room, sys.maxsize, options.seed)
        errors = [
            one
            for one in everything
            if one.file in files and not lived.isdisjoint(_without_lines(one.shown()))
        ]
    if not errors:
        parser.error(f"no error can be planted in app_server/{options.room}")
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    planter = Planter(options, errors, folder)
    try:
        status = _pytest(options.tests or [str(tests_of(options.room))], options.seed, planter)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return status or int(planter.percent < options.floor)


if __name__ == "__main__":
    sys.exit(main())
