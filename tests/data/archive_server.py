"""A loopback server for archives: the hub's redirect with size and hash, ranges, and faults."""

import hashlib
import io
import json
import re
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from dtpt.data.catalog import catalog_entry


class Archives(ThreadingHTTPServer):
    """`files` by name; `cuts` are bytes after which connections break, one by one."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cuts, self.requests = files, [], []
        self.has_ranges, self.sha256 = True, None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = unquote(self.path)
        name = path.rpartition("/")[2]
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        data = self.server.files.get(name)
        if data is None:
            self.send(404, b"", {})
        elif "/resolve/" in path:
            digest = self.server.sha256 or hashlib.sha256(data).hexdigest()
            linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{digest}"'}
            self.send(302, b"", {"Location": f"{self.server.url}/cdn/{name}", **linked})
        else:
            self.send_file(data)

    def send_file(self, data):
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        found = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        is_same = self.headers.get("If-Range") in (None, etag)
        if not (found and self.server.has_ranges and is_same):
            self.send(200, data, {"ETag": etag})
        elif int(found[1]) >= len(data):
            self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            start = int(found[1])
            span = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.send(206, data[start:], {"ETag": etag, "Content-Range": span})

    def send(self, status, data, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "GET" or not data:
            return
        if self.server.cuts:
            self.wfile.write(data[: self.server.cuts.pop(0)])
            self.close_connection = True
        else:
            self.wfile.write(data)


def zipped(files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def small_dtd(image: bytes) -> bytes:
    """DTD as the hub has it, with the number of images that it has, all of them alike."""
    entry = catalog_entry("dtd")
    labels = [index % len(entry.classes) for index in range(entry.images)]
    rows = [[f"{entry.classes[k]}/{n}.jpg", k, entry.classes[k]] for n, k in enumerate(labels)]
    split = json.dumps({"train": [], "val": [], "test": rows}).encode()
    others = {f"dtd/{entry.split}": split, "__MACOSX/dtd/._a.jpg": b""}
    return zipped(
        {**{f"dtd/images/{rows[n][0]}": image + b"%d" % n for n in range(len(rows))}, **others}
    )


@contextmanager
def serving(files):
    server = Archives(files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
