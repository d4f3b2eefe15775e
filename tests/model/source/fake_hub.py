"""A hub on this machine: what `huggingface_hub` asks for is answered from dictionaries."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs


@attrs.define
class Repository:
    """A repository: its commits by branch, and each commit's files."""

    refs: dict[str, str]
    commits: dict[str, dict[str, bytes]]
    gated: bool = False


@attrs.define
class FakeHub:
    """The repositories, by `models/OWNER/NAME` or `datasets/OWNER/NAME`, and what was asked for.

    A gated repository gives its files to those who show `token`, and to nobody if that is None.
    """

    repositories: dict[str, Repository] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)
    token: str | None = None
    url: str = ""

    def add(self, name: str, files: dict[str, bytes], *, kind: str = "models", gated: bool = False) -> str:
        """Commit files to a repository's main branch; return the commit."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        repository = self.repositories.setdefault(f"{kind}/{name}", Repository({}, {}))
        repository.refs["main"], repository.gated = commit, gated
        repository.commits[commit] = files
        return commit


@contextmanager
def serve() -> Iterator[FakeHub]:
    """Run a hub."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            status, headers, body = answer(hub, path.strip("/").split("/"), self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Answer = tuple[int, dict[str, str], bytes]


def answer(hub: FakeHub, words: list[str], shown: str | None) -> Answer:
    """`api/models/OWNER/NAME/{revision,tree}/REV`, `OWNER/NAME/resolve/REV/FILE`."""
    is_api = words[0] == "api"
    kind = words[1] if is_api else "datasets" if words[0] == "datasets" else "models"
    owner, name, *rest = words[2:] if is_api else words[1:] if kind == "datasets" else words
    repository = hub.repositories.get(f"{kind}/{owner}/{name}")
    if repository is None:
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
    verb, revision, *file = rest or ["revision", "main"]
    commit = repository.refs.get(revision, revision)
    if commit not in repository.commits:
        return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
    if is_api:
        return 200, {}, json.dumps(described(f"{owner}/{name}", verb, commit, repository.commits[commit])).encode()
    if repository.gated and (hub.token is None or shown != f"Bearer {hub.token}"):
        return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
    return of_file(repository, commit, "/".join(file))


def described(name: str, verb: str, commit: str, files: dict[str, bytes]) -> Any:
    """What the hub says of a commit, or of its files."""
    if verb == "tree":
        hashes = {path: hashlib.sha1(data).hexdigest() for path, data in files.items()}
        return [{"type": "file", "path": p, "size": len(files[p]), "oid": oid} for p, oid in hashes.items()]
    siblings = [{"rfilename": path} for path in files]
    return {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": [], "private": False} | {
        "downloads": 0,
        "likes": 0,
    }


def of_file(repository: Repository, commit: str, path: str) -> Answer:
    """A file of a commit."""
    if path not in repository.commits[commit]:
        return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
    data = repository.commits[commit][path]
    return 200, {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'}, data
