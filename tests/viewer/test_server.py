"""The server answers this computer's own browser, for one page, and nobody and nothing else."""

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from cartograd.errors import FileAbsentError, OptionError
from cartograd.viewer import server as server_module
from cartograd.viewer.server import PageServer, serve

PAGE = b"<!doctype html><p>the page"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret.txt").write_text("secret")
    (folder / "map.html").write_bytes(PAGE)
    with PageServer(folder / "map.html") as running:
        running.folder = folder
        yield running


def talk(server, request):
    """Send bytes, read the whole answer: status, headers, body."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, body


def path_of(server):
    return "/" + server.url.split("/", 3)[3]


def ask(server, path=None, method="GET", host=None, more=""):
    path = path_of(server) if path is None else path
    host = f"127.0.0.1:{server.port}" if host is None else host
    return talk(server, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())


def test_serves_the_page_with_strict_headers(server):
    status, headers, body = ask(server)
    assert (status, body) == (200, PAGE)
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-length"] == str(len(PAGE))
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in headers if name.startswith("access-control")]
    assert "Python" not in headers["server"]


def test_head_has_no_body_and_localhost_is_a_name_for_it(server):
    assert ask(server, method="HEAD")[0::2] == (200, b"")
    assert ask(server, host=f"localhost:{server.port}")[0] == 200
    assert ask(server, path=path_of(server) + "?a=b")[0] == 200


TRAVERSALS = [
    *("/", "/index.html", "/map.html", "/favicon.ico", "/secret.txt", "//", "/./", "/../", "/..", "*"),
    *("../" * k + "etc/passwd" for k in range(1, 6)),
    *("/" + "../" * k + "etc/passwd" for k in range(1, 6)),
    *("/" + "%2e%2e/" * k + "etc/passwd" for k in range(1, 4)),
    *("/" + "..%2f" * k + "etc/passwd" for k in range(1, 4)),
    *("/" + "..%5c" * k + "windows/win.ini" for k in range(1, 4)),
    *("/%252e%252e/etc/passwd", "/....//....//etc/passwd", "/..;/etc/passwd", "/..\\..\\etc\\passwd", "/%00", "/%2f"),
    *("file:///etc/passwd", "http://127.0.0.1/etc/passwd", "//etc/passwd", "/etc/passwd", "\\\\host\\share"),
    *("/C:/windows/win.ini", "/~root", "/.git/config", "/proc/self/environ", "/%c0%ae%c0%ae/etc/passwd", "/?../../etc"),
    *("/{token}", "/{token}/../secret.txt", "/{token}/secret.txt", "/{token}//", "/{token}/./", "/{token}/%2e"),
    *("/{token}/..", "/{token}/map.html", "/%7B{token}/", "/x{token}/", "/{token}x/", "/{half}/", "/{upper}/"),
]


def test_there_are_fifty_of_them():
    assert len(set(TRAVERSALS)) >= 50


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_other_path_is_known(server, path):
    token = path_of(server).strip("/")
    path = path.format(token=token, half=token[:16], upper=token.swapcase())
    status, _, body = ask(server, path=path)
    assert status in (400, 404)
    assert b"secret" not in body
    assert b"root:" not in body
    assert PAGE not in body


@pytest.mark.parametrize(
    "host",
    [
        "", "null", "evil.example", "evil.example:{port}", "evil.example#127.0.0.1:{port}", "127.0.0.1", "127.0.0.1:1",
        "localhost", "localhost:1", "localhost.:{port}", "127.0.0.1.evil.example:{port}",
        "localhost.evil.example:{port}",
        "127.0.0.1:{port}.evil.example", "127.0.0.1:{port}@evil.example", "user@127.0.0.1:{port}",
        "127.0.0.1:{port} evil",
        "127.0.0.1:{port},evil.example", "127.0.0.1:0{port}", "127.0.0.2:{port}", "0.0.0.0:{port}", "[::1]:{port}",
        "2130706433:{port}", "0x7f.1:{port}", "127.1:{port}",
    ],
)  # fmt: skip
def test_other_hosts_names_are_refused(server, host):
    status, _, body = ask(server, host=host.format(port=server.port))
    assert status == 403
    assert PAGE not in body


def test_no_host_two_hosts_and_foreign_origins_are_refused(server):
    path, own = path_of(server), f"127.0.0.1:{server.port}"
    assert talk(server, f"GET {path} HTTP/1.0\r\n\r\n".encode())[0] == 403
    assert talk(server, f"GET {path} HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n".encode())[0] == 403
    assert ask(server, more="Origin: http://evil.example\r\n")[0] == 403
    assert ask(server, more="Origin: null\r\n")[0] == 403
    assert ask(server, more=f"Origin: http://{own}\r\n")[0] == 200


@pytest.mark.parametrize("line", ["X", "\0: x", "\r", "Host: {own}\r"])
def test_headers_behind_a_broken_one_are_not_overlooked(server, line):
    path, own = path_of(server), f"127.0.0.1:{server.port}"
    lines = [f"GET {path} HTTP/1.1", f"Host: {own}", line.format(own=own), "Host: evil.example", "", ""]
    status, _, body = talk(server, "\r\n".join(lines).encode())
    assert status in (400, 403)
    assert PAGE not in body


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X"]
)
def test_other_methods_are_refused(server, method):
    status, headers, body = ask(server, method=method)
    assert status == 405
    assert PAGE not in body
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET " + b"a" * 70000,
        b"A B C D\r\n\r\n",
    ],
)
def test_broken_requests_get_no_page_and_do_no_harm(server, request_bytes):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        try:
            assert PAGE not in connection.recv(65536)
        except ConnectionResetError:  # refused without reading it to its end
            assert len(request_bytes) > 65536
    assert ask(server)[0] == 200


def test_listens_on_loopback_only(server):
    bound = server._http.socket.getsockname()[0]
    assert ipaddress.ip_address(bound).is_loopback
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others:
        if not ipaddress.ip_address(address).is_loopback:
            with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
                socket.create_connection((address, server.port), timeout=2).close()


def test_tokens_are_long_and_never_the_same():
    with PageServer(PAGE) as one, PageServer(PAGE) as two:
        tokens = [path_of(one).strip("/"), path_of(two).strip("/")]
    assert tokens[0] != tokens[1]
    assert all(len(token) >= 32 for token in tokens)


def test_a_page_written_anew_is_served_anew_and_a_lost_one_is_gone(tmp_path):
    page = tmp_path / "map.html"
    page.write_bytes(b"one")
    with PageServer(page) as running:
        assert ask(running)[2] == b"one"
        page.write_bytes(b"two")
        assert ask(running)[2] == b"two"
        page.unlink()
        assert ask(running)[0] == 410


def test_many_readers_at_once(server):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(server)[2])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [PAGE] * 20


def test_closing_frees_the_port_and_may_be_done_twice():
    running = PageServer(PAGE)
    running.close()
    running.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running.port), timeout=2)


def test_a_connection_that_is_open_is_not_answered_after_closing():
    running = PageServer(PAGE)
    request = f"GET {path_of(running)} HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode()
    with (
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as silent,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as halfway,
    ):
        halfway.sendall(request[:-2])
        assert ask(running)[0] == 200  # both are being read by now
        running.close()
        answers = []
        for connection, rest in ((silent, request), (halfway, request[-2:])):
            try:
                connection.sendall(rest)
                answers.append(b"".join(iter(lambda one=connection: one.recv(65536), b"")))
            except ConnectionError:
                answers.append(b"")
    assert answers == [b"", b""]


def test_an_answer_that_is_being_sent_when_it_closes_is_sent():
    page = b"x" * 50_000_000
    running = PageServer(page)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(f"GET {path_of(running)} HTTP/1.0\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode())
        received = len(connection.recv(1000))
        running.close()
        while more := connection.recv(1 << 20):
            received += len(more)
    assert received > len(page)


def test_connections_are_limited(monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 3)
    with PageServer(PAGE) as running, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
        extra = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
        assert extra.recv(10) == b""


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_the_browser_is_started_with_a_file_of_this_user_alone(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    running = PageServer(PAGE)
    assert running.open_browser()
    (url,) = opened
    path = Path(urllib.request.url2pathname(url.removeprefix("file://")))
    assert path_of(running).strip("/") not in url
    assert running.url in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    running.close()
    assert not path.exists()


def test_the_file_is_gone_when_the_program_ends_without_closing(tmp_path):
    code = """
import webbrowser
from cartograd.viewer import PageServer
webbrowser.open = lambda url: print(url) is None
PageServer(b"<p>").open_browser()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not Path(urllib.request.url2pathname(done.stdout.strip().removeprefix("file://"))).exists()


def test_bad_arguments(tmp_path):
    with pytest.raises(FileAbsentError, match="there is no page"):
        serve(tmp_path / "none.html")
    with pytest.raises(OptionError, match="port must be from 0"):
        PageServer(PAGE, port=70000)
    with PageServer(PAGE) as running, pytest.raises(OptionError, match="cannot be used"):
        PageServer(PAGE, port=running.port)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_it_cleanly(tmp_path):
    page = tmp_path / "map.html"
    page.write_bytes(PAGE)
    code = f"from cartograd.viewer import serve; serve({str(page)!r}, open_browser=False); print('over')"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    assert urllib.request.urlopen(url, timeout=10).read() == PAGE
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "over\n", "")
