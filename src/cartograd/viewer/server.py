"""A server for one page, for this computer alone.

It listens on 127.0.0.1 and answers GET and HEAD for one path, which begins with a random token. A request that names
another host is refused: a foreign site whose name is made to point here (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import http.server
import logging
import os
import secrets
import socket
import socketserver
import sys
import threading
import weakref
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any

from cartograd.errors import FileAbsentError, OptionError
from cartograd.viewer.redirect import remove, write_redirect

logger = logging.getLogger("cartograd.viewer")
ADDRESS = "127.0.0.1"
PATIENCE = 20.0
"""Seconds a connection may say nothing."""
MOST_CONNECTIONS = 256
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageServer:
    """Serves one page in a thread of its own until it is closed.

    Parameters
    ----------
    page : pathlib.Path or bytes
        The page: a file, read anew for each request, or its content.
    port : int, default=0
        The port; 0 takes one that is free.

    Examples
    --------
    >>> import urllib.request
    >>> with PageServer(b"<p>hello") as server:
    ...     urllib.request.urlopen(server.url).read()
    b'<p>hello'
    """

    def __init__(self, page: Path | bytes, port: int = 0) -> None:
        if not 0 <= port < 2**16:
            raise OptionError(f"port must be from 0 (any that is free) to 65535, got {port}")
        self.read_once = threading.Event()
        self._remove_redirect: Callable[[], Any] = lambda: None
        self._token = secrets.token_urlsafe(24)
        try:
            self._http = _LoopbackServer((ADDRESS, port), _Handler)
        except OSError as error:
            raise OptionError(f"port {port} cannot be used ({error}); use port=0, which takes a free one") from error
        self.port: int = self._http.server_address[1]
        self._http.hosts = frozenset({f"{ADDRESS}:{self.port}", f"localhost:{self.port}"})
        self._http.routes = {f"/{self._token}/": lambda: page if isinstance(page, bytes) else page.read_bytes()}
        self._http.sent = self.read_once.set
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page, token included."""
        return f"http://{ADDRESS}:{self.port}/{self._token}/"

    def open_browser(self) -> bool:
        """Open the page in the browser and return whether there is one.

        The browser is started with the name of a file that leads to the address and that only this user can read:
        command lines, which all users of a computer can read, never hold the token. `close` removes the file.
        """
        self._remove_redirect()
        path = write_redirect(self.url)
        self._remove_redirect = weakref.finalize(self, remove, path)  # at the exit of the program, too
        return webbrowser.open(path.as_uri())

    def wait(self) -> None:
        """Serve until Ctrl-C, then close."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.2)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stop serving and free the port; a second call does nothing. An answer that is being sent is sent."""
        self._http.shutdown()
        self._http.server_close()
        self._http.end_connections()
        self._thread.join()
        self._remove_redirect()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(path: str | os.PathLike[str], port: int = 0, open_browser: bool = True) -> str:
    """Serve a page to this computer's browsers until Ctrl-C.

    Prints the address, which holds a random token, and opens it.

    Parameters
    ----------
    path : str or os.PathLike
        A page that `write_page` wrote.
    port : int, default=0
        The port; 0 takes one that is free.
    open_browser : bool, default=True
        Open the page in the browser.

    Returns
    -------
    str
        The address that was served.
    """
    page = Path(path)
    if not page.is_file():
        raise FileAbsentError(
            f"there is no page {page}: write one with cartograd.viewer.write_page, or name another file"
        )
    with PageServer(page, port) as server:
        print(server.url, flush=True)
        if open_browser:
            server.open_browser()
        server.wait()
    return server.url


class _LoopbackServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Not http.server's own class: that one asks the network for this computer's name."""

    request_queue_size = 128  # five, the default, turns away readers that come at once

    daemon_threads = True
    allow_reuse_address = os.name == "posix"
    hosts: frozenset[str] = frozenset()
    routes: dict[str, Callable[[], bytes]] = {}
    sent: Callable[[], None]
    closed = False

    def __init__(self, *args: Any) -> None:
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(*args)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Turn away connections beyond `MOST_CONNECTIONS`, each of which has a thread."""
        with self._lock:
            if len(self._connections) >= MOST_CONNECTIONS:
                return False
            self._connections.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Read nothing more: threads that wait for a request end, and requests that are there are not answered."""
        self.closed = True
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):  # the other side has closed it
                    connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle of an answer is no event; anything else is logged."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            logger.exception("a request could not be answered")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _LoopbackServer
    server_version = "cartograd"
    sys_version = ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.server.closed:
            return
        if self.headers.defects or self.headers.get_payload():  # a line that is no header, which hides those after it
            return self._refuse(HTTPStatus.BAD_REQUEST)
        if not self._is_for_us():
            return self._refuse(HTTPStatus.FORBIDDEN)
        route = self.server.routes.get(self._known_path())
        if route is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        try:
            page = route()
        except OSError:
            return self._refuse(HTTPStatus.GONE)
        self._begin(HTTPStatus.OK, "text/html; charset=utf-8", len(page))
        if with_body:
            self.wfile.write(page)
            self.server.sent()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself: broken requests, and every method but GET and HEAD."""
        del message, explain
        self.close_connection = True
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code))

    def _is_for_us(self) -> bool:
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        own = {f"http://{host}" for host in self.server.hosts}
        return len(hosts) == 1 and hosts[0].lower() in self.server.hosts and all(origin in own for origin in origins)

    def _known_path(self) -> str:
        """The route the request asks for, or nothing; each is compared in constant time, for it holds the token."""
        asked = self.path.partition("?")[0].encode()
        return next((route for route in self.server.routes if secrets.compare_digest(route.encode(), asked)), "")

    def _refuse(self, status: HTTPStatus) -> None:
        if self.server.closed:
            return
        body = f"{status.value} {status.phrase}\n".encode()
        self._begin(status, "text/plain; charset=utf-8", len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, length: int) -> None:
        self.send_response(status)
        for name, value in (HEADERS | {"Content-Type": kind, "Content-Length": str(length)}).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the token is in the address and belongs in no log."""
