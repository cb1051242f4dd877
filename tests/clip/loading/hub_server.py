"""A loopback server that speaks as much of the hub's protocol as huggingface_hub needs."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories: {"org/repo": {"file name": bytes}}; `requests` records method and path.

    Uploads need the token "hf_write"; `objects` holds large files between upload and commit.
    """

    daemon_threads = True

    def __init__(self, repositories):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = repositories
        self.requests = []
        self.objects = {}
        self.commits = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def do_POST(self):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append(("POST", path))
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != "Bearer hf_write":
            self.send(401, b'{"error": "Invalid credentials"}', True)
            return
        parts = path.split("/")
        steps = {
            "create": self.create,
            "validate-yaml": self.validate,
            "preupload": self.preupload,
            "commit": self.commit,
            "batch": self.batch,
        }
        step = next(step for word, step in steps.items() if word in parts)
        self.send(200, json.dumps(step(data, "/".join(parts[2:4]))).encode(), True)

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(("PUT", self.path))
        self.server.objects[self.path.rpartition("/")[2]] = data
        self.send(200, b"", True)

    def create(self, data, _):
        wanted = json.loads(data)
        repo = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        self.server.repositories.setdefault(repo, {})
        return {"url": f"{self.server.url}/{repo}"}

    def validate(self, _data, _repo):
        return {"warnings": []}

    def preupload(self, data, _):
        files = json.loads(data)["files"]
        kinds = {True: "lfs", False: "regular"}
        return {
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": kinds[file["path"].endswith(".safetensors")],
                    "shouldIgnore": False,
                }
                for file in files
            ]
        }

    def batch(self, data, _):
        objects = [
            {**o, "actions": {"upload": {"href": f"{self.server.url}/upload/{o['oid']}"}}}
            for o in json.loads(data)["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def commit(self, data, repo):
        lines = [json.loads(line) for line in data.splitlines()]
        files = self.server.repositories[repo]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
        self.server.commits.append(lines[0]["value"]["summary"])
        return {"commitUrl": f"{self.server.url}/{repo}/commit/{COMMIT}", "commitOid": COMMIT}

    def answer(self, body):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append((self.command, path))
        parts = path.split("/")
        if parts[:2] == ["api", "models"]:
            self.answer_api("/".join(parts[2:4]), parts[4:], body)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self.answer_file("/".join(parts[:2]), "/".join(parts[4:]), body)
        else:
            self.send(404, b"", body)

    def answer_api(self, repo, rest, body):
        files = self.server.repositories.get(repo)
        if files is None:
            self.send(404, b"{}", body, {"X-Error-Code": "RepoNotFound"})
        elif rest[:1] == ["tree"]:
            tree = [
                {"type": "file", "path": n, "size": len(d), "oid": hashlib.sha1(d).hexdigest()}
                for n, d in files.items()
            ]
            self.send(200, json.dumps(tree).encode(), body)
        else:
            siblings = [{"rfilename": name} for name in files]
            info = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
            self.send(200, json.dumps(info).encode(), body)

    def answer_file(self, repo, name, body):
        data = self.server.repositories.get(repo, {}).get(name)
        if data is None:
            self.send(404, b"", body, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        headers = {"ETag": etag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        self.send(200, data, body, headers)

    def send(self, status, data, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


@contextmanager
def running_hub(repositories):
    hub = Hub(repositories)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join(timeout=5)
