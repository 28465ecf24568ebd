"""The demo of a fleet: two nodes with one database, and the death of the one that owns the thread.

Its PostgreSQL is found on this machine and has temporary data: it runs as an ordinary user, answers
on a Unix socket that this user alone reaches, and does not sync. The client talks to the other node
all the time, as one does that was sent to any of them.
Source: docs/scale.md; https://www.postgresql.org/docs/current/reference-server.html.
"""

import asyncio
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from app_server.clients.demo.process import (
    RUN_S,
    START_S,
    ServerProcess,
    environment,
    run_to_end,
    start_server,
)
from app_server.clients.demo.thread import SERVER, DemoThread, configure
from app_server.clients.demo.transcript import NotInstalled, Transcript
from app_server.peer.connection import Client
from app_server.threads.opening.stores import NO_PSYCOPG
from protocol.model import JsonObject

OLDEST = 15
PROGRAMS = ("initdb", "postgres", "pg_isready", "createuser", "createdb")
PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
"""Where packages put the programs besides PATH: Debian, Fedora and PGDG, Homebrew, Postgres.app."""

NOT_FOUND = (
    f"PostgreSQL {OLDEST} or newer was not found; install it (Debian, Ubuntu: apt-get install "
    "postgresql; Fedora: dnf install postgresql-server postgresql-contrib; macOS: brew install "
    "postgresql@17), or put the folder of its programs in PATH"
)
FOLDER = "/tmp"  # noqa: S108 - mkdtemp makes a folder of its own there
"""Not TMPDIR: the path of a socket has at most 103 bytes on macOS, and other users get here."""
PORT = 5432
USERS = ("postgres", "nobody")
"""Users that run PostgreSQL when root starts the demo, the first one that there is."""
POLL_S = 0.05
STOP_S = 30.0
MAX_LOG_CHARS = 2_000

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "shared_buffers": "16MB",
    "fsync": "off",
    "full_page_writes": "off",
}


class Cluster:
    """A server of databases that runs."""

    def __init__(self, programs: Path, folder: Path, user: Mapping[str, Any]) -> None:
        """`programs` is their folder, `folder` holds data and socket; `user` is of subprocesses."""
        self._programs = programs
        self._user = user
        self.folder = folder

    async def run(self, name: str, *words: str, wait_s: float = RUN_S) -> str:
        """Run a program of PostgreSQL to its end; returns what it said.

        Raises:
            RuntimeError: it failed; the text has what it said.
            TimeoutError: it did not end within `wait_s`.
        """
        program = str(self._programs / name)
        options = {"env": _environment(), "cwd": self.folder, **self._user}
        return await run_to_end(program, *words, wait_s=wait_s, **options)

    async def administer(self, name: str, *words: str) -> None:
        """Run a client program as the administrator of the cluster."""
        await self.run(name, *self._place, "--username=postgres", *words)

    def url(self, role: str, database: str) -> str:
        """Return the URL of a database, as `store` of `config.toml` has it."""
        return f"postgresql://{role}@/{database}?host={self.folder}&port={PORT}"

    @property
    def _place(self) -> tuple[str, str]:
        return f"--host={self.folder}", f"--port={PORT}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make the data, and run the server while the context lasts.

        Raises:
            RuntimeError: it could not be made, or ended by itself; TimeoutError: it does not
                answer.
        """
        data, log_file = self.folder / "data", self.folder / "log"
        made = ("--username=postgres", "--encoding=UTF8", "--locale=C", "--auth=trust", "--no-sync")
        await self.run("initdb", f"--pgdata={data}", "--wal-segsize=1", *made)
        settings = {**SETTINGS, "unix_socket_directories": str(self.folder)}
        with log_file.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(str(self._programs / "postgres"), "-D", str(data)),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                cwd=self.folder, start_new_session=True, **self._user,
            )  # fmt: skip
        try:
            await self._wait_until_ready(process, log_file)
            yield
        finally:
            await _stop(process)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, log_file: Path) -> None:
        try:
            async with asyncio.timeout(START_S):
                while process.returncode is None:
                    with suppress(RuntimeError):
                        await self.run("pg_isready", *self._place)
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError as exc:
            raise TimeoutError(f"PostgreSQL did not answer in {START_S:g} s") from exc
        raise RuntimeError(f"PostgreSQL ended before it was ready:\n{_end_of(log_file)}")


@asynccontextmanager
async def running_cluster(programs: Path, user: Mapping[str, Any]) -> AsyncIterator[Cluster]:
    """Run a PostgreSQL in a folder of its own, which is removed afterwards.

    `programs` is the folder that `find_programs` gave for this user.

    Raises:
        RuntimeError: it could not be made; TimeoutError: not in time.
    """
    folder = Path(tempfile.mkdtemp(prefix="app-server-demo-", dir=FOLDER))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        cluster = Cluster(programs, folder, user)
        async with cluster.running():
            yield cluster
    finally:
        shutil.rmtree(folder)


async def find_programs(user: Mapping[str, Any], places: Sequence[str] = PLACES) -> Path:
    """Return the folder of PostgreSQL's programs: that of PATH, else the newest of `places`.

    `user` has the options of a subprocess that runs them; places are absolute patterns.

    Raises:
        NotInstalled: none has all of PROGRAMS in a version that is new enough.
    """
    in_path = shutil.which("initdb")
    if in_path is not None and await _version(Path(in_path).parent, user) >= OLDEST:
        return Path(in_path).parent
    versions = {folder: await _version(folder, user) for folder in _folders(places)}
    newest = max(versions, key=lambda folder: versions[folder], default=None)
    if newest is None or versions[newest] < OLDEST:
        raise NotInstalled(NOT_FOUND)
    return newest


def _folders(places: Sequence[str]) -> list[Path]:
    return [folder for place in places for folder in sorted(Path("/").glob(place[1:]))]


async def _version(folder: Path, user: Mapping[str, Any]) -> int:
    """Return the major version of the programs in a folder; 0 if some are not there."""
    if not all(os.access(folder / name, os.X_OK) for name in PROGRAMS):
        return 0
    try:
        said = await run_to_end(
            *(str(folder / "postgres"), "--version"), env=_environment(), cwd="/", **user
        )
    except (OSError, RuntimeError):
        # The user of the cluster may not run it.
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found[1]) if found else 0


def ordinary_user() -> dict[str, Any]:
    """Return options of a subprocess that runs as somebody else than root, which is refused.

    Raises:
        NotInstalled: root runs the demo, and there is nobody else.
    """
    if os.geteuid() != 0:
        return {}
    for name in USERS:
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NotInstalled(
        "PostgreSQL refuses to run as root, and there is no user postgres or nobody; run the demo "
        "as another user"
    )


def _end_of(log_file: Path) -> str:
    return log_file.read_text(errors="replace")[-MAX_LOG_CHARS:]


def _environment() -> dict[str, str]:
    # Variables of the user's, such as PGPORT, are about other databases.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the server at once: nothing in it is kept."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await process.wait()
                return


ROLE, DATABASE = "agents", "threads"
ASKED = "mcpServer/elicitation/request"
RESOLVED = "serverRequest/resolved"
SIGNAL = "The build of main has failed."
LOOK = f'/tool {SERVER}.look {{"at": "the harbour"}}'


async def run(transcript: Transcript, folder: Path, /) -> None:
    """Run the demo in an empty folder.

    Raises:
        NotInstalled: PostgreSQL, or the library that talks to it, is not on this machine.
    """
    if not all(importlib.util.find_spec(name) for name in ("psycopg", "psycopg_pool")):
        raise NotInstalled(NO_PSYCOPG)
    user = ordinary_user()
    programs = await find_programs(user)
    homes = [folder / name for name in ("one", "two")]
    async with AsyncExitStack() as stack:
        with transcript.step("Start a PostgreSQL for the demo alone"):
            cluster = await stack.enter_async_context(running_cluster(programs, user))
            transcript.say("database", f"runs in {cluster.folder}")
            url = await _make_database(transcript, cluster, folder)
        one, two = await _start_nodes(transcript, stack, homes, url)
        client = await stack.enter_async_context(two.connect())
        thread = await _begin_at(transcript, one, client)
        await _take_signal(thread)
        before = await thread.turns()
        await _lose_owner(thread, one)
        await _go_on(thread, before)
        with transcript.step("Start node one again: a client of it has the same thread"):
            one = await stack.enter_async_context(start_server(homes[0]))
            transcript.say("one", f"is back on {one.url}")
            await _find_again(thread, one)
        with transcript.step("Stop both nodes with SIGTERM"):
            statuses = [await node.stop() for node in (one, two)]
            transcript.check("they end by themselves", statuses == [0, 0])


async def _make_database(transcript: Transcript, cluster: Cluster, folder: Path) -> str:
    """Make a role, its database and the tables, as docs/scale.md says; returns the URL."""
    for command in (("createuser", ROLE), ("createdb", "--owner", ROLE, DATABASE)):
        transcript.say("admin", " ".join(command))
        await cluster.administer(*command)
    url = cluster.url(ROLE, DATABASE)
    words = ("store", "migrate", "--store", url)
    transcript.say("admin", f"app-server {' '.join(words)}")
    # In an empty home: settings of the user's may be broken.
    program = (sys.executable, "-m", "app_server.cli.serve", *words, "--home", str(folder))
    said = await run_to_end(*program, env=environment(), cwd=folder)
    transcript.check("the database is ready for threads", " is ready: " in said)
    return url


async def _start_nodes(
    transcript: Transcript, stack: AsyncExitStack, homes: Sequence[Path], url: str
) -> list[ServerProcess]:
    """Start a node in each home: one database, and one secret."""
    secret = secrets.token_hex()
    settings = f'store = {to_json(url).decode()}\nnode_secret_file = "node-secret"\n'
    nodes: list[ServerProcess] = []
    with transcript.step("Start two nodes with this database and a secret in common"):
        for home in homes:
            home.mkdir()
            (home / "node-secret").touch(0o600)
            (home / "node-secret").write_text(secret)
            configure(home, 'default_tools_approval_mode = "prompt"\n', settings)
            node = await stack.enter_async_context(start_server(home))
            transcript.say(home.name, f"listens on {node.url}")
            nodes.append(node)
        transcript.check("each has an address of its own", nodes[0].url != nodes[1].url)
    return nodes


async def _begin_at(transcript: Transcript, owner: ServerProcess, client: Client) -> DemoThread:
    """Begin a thread at its owner, and go on as a client of the other node."""
    with transcript.step("Begin a thread at node one, and use it from node two"):
        async with owner.connect() as at_owner:
            started = await at_owner.call("thread/start", {})
            thread = DemoThread(transcript, client, started["thread"]["id"])
            await DemoThread(transcript, at_owner, thread.id).wait_for_servers({SERVER})
            transcript.say("one", f"owns thread {thread.id}")
            await client.call("thread/resume", {"threadId": thread.id})
        turn = await _turn(thread, "Hello there.")
        transcript.check("the client of node two has a turn", turn["status"] == "completed")
        transcript.check("node two has not loaded the thread", await _loaded(client) == 0)
    return thread


async def _take_signal(thread: DemoThread) -> None:
    with thread.transcript.step("Give node two a signal for the thread of node one"):
        thread.transcript.say("signal", SIGNAL)
        named = {"source": "demo", "id": "build-1"}
        signal = {**named, "type": "Build", "sender": "ci", "summary": SIGNAL}
        params = {"signal": signal, "target": {"threadId": thread.id}, "mode": "wake"}
        receipt = (await thread.client.call("signal/deliver", params))["receipt"]
        thread.transcript.say("receipt", f"{receipt['stage']}, woken: {receipt['woken']}")
        thread.transcript.check("the thread was woken by it", receipt["woken"])
        text = (await thread.items("agentMessage"))[-1]["text"]
        thread.transcript.say("model", text)
        thread.transcript.check("the model was told", SIGNAL in text)
        await thread.client.wait_for("signal/updated", _is_answered)
        read = (await thread.client.call("signal/read", named))["receipt"]
        thread.transcript.check("node two has the receipt: answered", read["stage"] == "answered")


def _is_answered(params: JsonObject) -> bool:
    return bool(params["receipt"]["stage"] == "answered")


async def _lose_owner(thread: DemoThread, owner: ServerProcess) -> None:
    with thread.transcript.step("kill -9 node one, in a turn that waits for an approval"):
        await thread.begin(LOOK)
        request_id, asked = await thread.client.asked(ASKED)
        thread.transcript.say("server", asked["message"])
        await owner.kill()
        thread.transcript.say("one", "was killed; node two makes sure that it is dead")
        resolved = await thread.client.wait_for(RESOLVED, lambda params: True)
        withdrawn = resolved == {"threadId": thread.id, "requestId": request_id}
        thread.transcript.check("the question is withdrawn", withdrawn)
        turn = await thread.end()
        thread.transcript.check("the turn has an end", turn["status"] == "interrupted")
        owned = await _loaded(thread.client) == 1
        thread.transcript.check("the thread is node two's", owned)


async def _go_on(thread: DemoThread, before: Sequence[JsonObject]) -> None:
    with thread.transcript.step("The thread goes on, over the same connection"):
        turn = await _turn(thread, "Still there?")
        thread.transcript.check("the turn completed", turn["status"] == "completed")
        turns = await thread.turns()
        thread.transcript.check("turns of before are as they were", turns[:2] == before)
        statuses = [turn["status"] for turn in turns[2:]]
        ended = statuses == ["interrupted", "completed"]
        thread.transcript.check("none was lost or doubled", ended)


async def _find_again(thread: DemoThread, node: ServerProcess) -> None:
    turns = await thread.turns()
    async with node.connect() as client:
        there = DemoThread(thread.transcript, client, thread.id)
        resumed = await client.call("thread/resume", {"threadId": thread.id})
        same = resumed["thread"]["turns"] == turns
        thread.transcript.check("it shows every turn and item", same)
        turn = await _turn(there, "And from here?")
        thread.transcript.check("it has a turn of the thread", turn["status"] == "completed")
        thread.transcript.check("which is still node two's", await _loaded(client) == 0)


async def _turn(thread: DemoThread, text: str) -> JsonObject:
    await thread.begin(text)
    items = await thread.items("agentMessage")
    thread.transcript.say("model", items[-1]["text"])
    return await thread.end()


async def _loaded(client: Client) -> int:
    """Return how many threads the node of a client has in memory."""
    loaded: int = (await client.call("server/diagnostics", {}))["threads"]["loaded"]
    return loaded
