"""Repositories behind HTTP on this machine: `git http-backend`, as a web server runs it."""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import anyio.to_thread

SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "t" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "t@t" for who in ("AUTHOR", "COMMITTER")},
}


class Repository:
    """A repository that a test writes and commits to; the peer serves it as it is then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def commit(self, *tags: str) -> str:
        """Commit all there is; gives the name of the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        for tag in tags:
            self.git("tag", "-a", tag, "-m", tag)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """Run Git here; gives what it prints."""
        command = ["git", "-C", str(self.folder), *arguments]
        env = {**os.environ, **SETTINGS}
        run = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        return run.stdout.strip()


class GitPeer(ThreadingHTTPServer):
    """Serves the repositories below a folder, by name."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.requests: list[str] = []
        """Path and query of each."""
        self.wants_password = False

    def url(self, name: str) -> str:
        """Return where a repository is."""
        return f"http://127.0.0.1:{self.server_port}/{name}"


class _Handler(BaseHTTPRequestHandler):
    server: GitPeer

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._run()

    def do_POST(self) -> None:
        self._run()

    def _run(self) -> None:
        self.server.requests.append(self.path)
        if self.server.wants_password:
            self.send_response(401)
            self.send_header("www-authenticate", 'Basic realm="x"')
            self.send_header("content-length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        name, _, rest = path.lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        env = {
            **os.environ,
            **SETTINGS,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{name}/.git/{rest}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
        }
        run = subprocess.run(
            ["git", "http-backend"], env=env, input=body, capture_output=True, check=False
        )
        head, _, content = run.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for key, value in headers if key == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for key, value in headers:
            if key != "Status":
                self.send_header(key, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@asynccontextmanager
async def serve_git(root: Path) -> AsyncIterator[GitPeer]:
    """Serve while the context lasts."""
    peer = GitPeer(root)
    thread = Thread(target=peer.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield peer
    finally:
        await anyio.to_thread.run_sync(peer.shutdown)
        thread.join()
        peer.server_close()
