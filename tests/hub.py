"""A hub of our own: the part of Hugging Face's HTTP API that files need, with the faults that networks have."""
import hashlib
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    files: dict[str, bytes]
    gated: bool = False
    commit: str = COMMIT


@dataclass
class Hub:
    """Files of 1 KiB and more are 'large': redirected to another host, which must not see the token."""
    repos: dict[str, Repo] = field(default_factory=dict)
    token: str | None = None
    #: (bytes, times): transfers break off after this many bytes, this many times.
    break_after: int = 0
    breaks: int = 0
    #: Answer with whole files even when a range is requested.
    no_ranges: bool = False
    #: Served instead of what was promised.
    damage: dict[str, bytes] = field(default_factory=dict)
    #: Speaks TLS where it has one.
    tls: ssl.SSLContext | None = None
    log: list[tuple[str, str, str | None]] = field(default_factory=list)

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        if self.tls:
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "https" if self.tls else "http"
        self.url = f"{self.scheme}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def transfers(self) -> list[str | None]:
        """The ranges that were requested of large files."""
        return [wanted for _, path, wanted in self.log if path.startswith("/cdn/")]


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def handler(hub: Hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.respond(body=False)

        def do_GET(self):
            self.respond(body=True)

        def respond(self, body: bool):
            hub.log.append((self.command, self.path, self.headers.get("range")))
            parts = self.path.strip("/").split("/")
            if parts[0] == "cdn":
                assert self.headers.get("authorization") is None, "the token went to another place"
                return self.content("/".join(parts[1:3]), "/".join(parts[3:]), body)
            if parts[:2] == ["api", "models"]:
                name = "/".join(parts[2:4])
                if not self.allowed(name):
                    return
                repo = hub.repos[name]
                listing = {"sha": repo.commit, "siblings": [{"rfilename": file} for file in repo.files]}
                return self.answer(200, json.dumps(listing).encode(), {"content-type": "application/json"}, body)
            name, commit, file = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
            if not self.allowed(name):
                return
            repo = hub.repos[name]
            if commit != repo.commit or file not in repo.files:
                return self.answer(404, b"Entry not found", {"x-error-code": "EntryNotFound"}, body)
            content = repo.files[file]
            if len(content) < 1024:
                return self.content(name, file, body, {"etag": f'"{git_sha1(content)}"', "x-repo-commit": commit})
            self.answer(302, b"", {
                "location": f"{hub.scheme}://localhost:{hub.server.server_port}/cdn/{name}/{file}", "x-repo-commit": commit,
                "x-linked-etag": f'"{hashlib.sha256(content).hexdigest()}"', "x-linked-size": str(len(content)),
            }, body)

        def allowed(self, name: str) -> bool:
            authorized = hub.token is not None and self.headers.get("authorization") == f"Bearer {hub.token}"
            if name not in hub.repos:
                self.answer(404 if authorized else 401, b"", {"x-error-code": "RepoNotFound"}, True)
            elif hub.repos[name].gated and not authorized:
                self.answer(401, b"", {"x-error-code": "GatedRepo"}, True)
            else:
                return True
            return False

        def content(self, name: str, file: str, body: bool, headers=None):
            content = hub.damage.get(file, hub.repos[name].files[file])
            begin = 0
            if (wanted := self.headers.get("range")) and not hub.no_ranges:
                begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            status = 206 if begin else 200
            sent = content[begin:]
            if body and hub.breaks > 0:
                hub.breaks -= 1
                self.send_response(status)
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent[:hub.break_after])
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
                return
            self.answer(status, sent, headers or {}, body)

        def answer(self, status: int, content: bytes, headers: dict[str, str], body: bool):
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    return Handler
