"""Hostile requests to the viewer's server: the page goes to whoever names its address and host, and to nobody else.

A case is one connection: bytes are sent, whole or in pieces, and the answer is read to its end. Accepted: the page for
a request that is right in everything; otherwise no answer or a refusal with a status that is documented. Afterwards the
server still answers, and its log has no error.
"""

import logging
import os
import random
import re
import socket
import time

import pytest

from cartograd.viewer import PageServer

FAILED_BEFORE: list[int] = []
"""Seeds that have failed once: they are tried in each run."""
CASES = 4000
PAGE = b"<!doctype html><p>the page"
REFUSALS = {400, 403, 404, 405, 408, 414, 431, 505}
METHODS = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "G ET",
    "",
    "\0",
    "GET\t",
    "X" * 99,
]
VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1.1", "HTTP/1", "HTTP/-1.1", "HTTP/1.999999999999"]
VERSIONS += ["HTTP/١.١", "http/1.1", "HTP/1.1", "", "HTTP/", "HTTP/1.x", "HTTP/1.1 x"]
PATHS = [
    "/",
    "{path}",
    "{path}?a=b",
    "{path}#x",
    "{path}x",
    "{path}/",
    "/{path}",
    "{path}..",
    "/../{path}",
    "{upper}",
    "*",
]
PATHS += [
    "http://{host}{path}",
    "http://evil.example{path}",
    "//{host}{path}",
    "{path}\\",
    "/%00",
    "/" + "a" * 70_000,
    "",
]
PATHS += [
    "{path}\0",
    "{half}",
    "/\udcff",
    "{path}%2e",
    "/" + "../" * 50 + "etc/passwd",
    "{path};x",
    " {path}",
    "?{path}",
]
HEADERS = [
    "Host: {host}",
    "Host: evil.example",
    "Host:",
    "Host: {host}, evil.example",
    "Host : {host}",
    " Host: {host}",
]
HEADERS += [
    "host: {upper_host}",
    "Origin: http://{host}",
    "Origin: null",
    "Origin: http://evil.example",
    "X",
    ":",
    "\0: x",
]
HEADERS += [
    "Content-Length: 9999999999999999999999",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "X: " + "y" * 70_000,
]
HEADERS += [
    "Expect: 100-continue",
    "Connection: keep-alive",
    "Connection: upgrade",
    "Range: bytes=0-999999999",
    "X: \udcff",
]
HEADERS += ["Cookie: a=b", " folded: {host}", "Upgrade: websocket", "Accept-Encoding: gzip", "Host: localhost:{port}"]
ENDS = ["\r\n", "\n", "\r", "\r\r\n", "\0\r\n", ""]


@pytest.fixture(scope="module")
def server():
    with PageServer(PAGE) as running:
        yield running


def places_of(server):
    """What stands for the names in braces."""
    path = "/" + server.url.split("/", 3)[3]
    host = f"127.0.0.1:{server.port}"
    half, upper = path[: len(path) // 2] + "/", path.swapcase()
    return {
        "path": path,
        "host": host,
        "half": half,
        "upper": upper,
        "upper_host": host.upper(),
        "port": str(server.port),
    }


def request_of(rng, places):
    """A request: a right one with a few of its parts replaced, and sometimes with its bytes damaged."""
    parts = [rng.choice(METHODS[:3]), "{path}", "HTTP/1.1"]
    headers, end = ["Host: {host}"], "\r\n"
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        what = rng.randrange(7)
        if what < 3:
            parts[what] = rng.choice((METHODS, PATHS, VERSIONS)[what])
        elif what < 5:
            headers.insert(rng.randrange(len(headers) + 1), rng.choice(HEADERS))
        elif what == 5:
            headers[rng.randrange(len(headers))] = rng.choice(HEADERS)
        else:
            end = rng.choice(ENDS)
    if rng.random() < 0.02:
        headers += [f"X-{number}: y" for number in range(rng.choice((99, 100, 101, 500)))]
    text = end.join([" ".join(parts), *headers, "", ""])
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    data = text.encode("utf-8", "surrogateescape")
    return damaged(rng, data) if rng.random() < 0.3 else data


def damaged(rng, data):
    """The bytes with some of them changed, cut or added; sometimes bytes of no request at all."""
    place = rng.randrange(len(data) + 1)
    run = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
    return rng.choice([data[:place], data[:place] + run + data[place:], data[:place] + run, run, b"\x16\x03\x01" + run])


def answer_to(server, pieces):
    """All that the server sends back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except TimeoutError:
            return b"nothing, and keeps the connection"
        except OSError:  # refused before the request was read to its end
            return b""


def is_right(data, places):
    """Whether a request may have the page: its path is that of the address, and it names no other host or origin."""
    lines = re.split(rb"\r\n|\r|\n", data)
    host, path = places["host"].encode(), places["path"].encode()
    words = lines[0].split()
    hosts = [line.partition(b":")[2].strip().lower() for line in lines[1:] if line.lower().startswith(b"host:")]
    origins = [line.partition(b":")[2].strip().lower() for line in lines[1:] if line.lower().startswith(b"origin:")]
    same_path = len(words) >= 2 and re.sub(rb"^/+", b"/", words[1].partition(b"?")[0]) == path
    same_host = len(hosts) == 1 and hosts[0] in (host, b"localhost:" + places["port"].encode())
    return same_path and same_host and all(origin == b"http://" + hosts[0] for origin in origins)


def wrong(data, answer, places):
    """What is wrong with an answer; None where nothing is."""
    if not answer:
        return None
    if PAGE in answer:
        return None if is_right(data, places) and data.startswith(b"GET") else "the page, to a wrong request"
    status = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    if status is None:  # a request of HTTP 0.9 is answered without a status
        return None if re.fullmatch(rb"\d{3} [A-Za-z -]+\n", answer) else f"answers {answer[:80]!r}"
    if int(status[1]) == 200:
        return None if is_right(data, places) and data.startswith(b"HEAD") else "status 200, to a wrong request"
    return None if int(status[1]) in REFUSALS else f"status {int(status[1])}"


def tried(server, seed, count):
    """The requests of a seed that did not end well, and what was wrong."""
    rng, places, found = random.Random(seed), places_of(server), []
    for _ in range(count):
        data = request_of(rng, places)
        cut = rng.randrange(len(data) + 1)
        answer = answer_to(server, [data[:cut], data[cut:]] if rng.random() < 0.2 else [data])
        said = wrong(data, answer, places)
        if said:
            found.append((data[:200], said))
    return found


def check(server, seed, count, caplog):
    print(f"seed {seed}")
    caplog.set_level(logging.WARNING)
    failures = tried(server, seed, count)
    assert not failures, f"seed {seed}: {len(failures)} of {count}, the first: {failures[0]}"
    assert not caplog.records, f"seed {seed}: {caplog.records[0].getMessage()} {caplog.records[0].exc_info}"
    places = places_of(server)
    good = f"GET {places['path']} HTTP/1.1\r\nHost: {places['host']}\r\n\r\n".encode()
    assert answer_to(server, [good]).endswith(PAGE)


def fresh_seed():
    return int(os.environ.get("CARTOGRAD_FUZZ_SEED") or time.time_ns() % 2**32)


def test_hostile_requests(server, caplog):
    check(server, fresh_seed(), CASES, caplog)


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_seeds_that_failed_before(server, seed, caplog):
    check(server, seed, CASES, caplog)


@pytest.mark.slow
def test_hostile_requests_for_long(server, caplog):
    check(server, fresh_seed(), 20 * CASES, caplog)
