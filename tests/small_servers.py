"""A small server of files on this machine, which behaves as well or as badly as a test wants."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What a server has, and how it behaves."""

    files: dict[str, bytes]
    ranges: bool = True  # whether it knows HTTP's Range
    cut: int | None = None  # bytes after which it ends every connection
    cuts: int = 1  # how many connections it ends so
    shift: int = 0  # how far off the ranges are that it sends
    asked: list[tuple[str, str]] = field(default_factory=list)  # files, and ranges of them
    address: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Send a file, or the part of it that was asked for."""
        name, wanted = request.path.lstrip("/"), request.headers.get("Range", "")
        self.asked.append((name, wanted))
        if name not in self.files:
            request.send_error(404)
            return
        content, start = self.files[name], 0
        if self.ranges and (found := re.fullmatch(r"bytes=(\d+)-", wanted)):
            start = int(found[1]) + self.shift
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(content) - start))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.end_headers()
        if self.cut is not None and self.cuts > 0:
            self.cuts -= 1
            request.wfile.write(content[start : start + self.cut])
            return
        request.wfile.write(content[start:])


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve a site on a free port; its address is in ``site.address``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield site
        finally:
            server.shutdown()
