"""A headless Chromium, driven by its DevTools protocol over a pair of pipes: nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SOFTWARE_GL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
NO_GL = ("--disable-gpu", "--disable-3d-apis")
# Chromium reads commands from descriptor 3 and answers on 4
LAUNCHER = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The browser's program, from the variable CHROMIUM or the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """The browser refused a command, threw in a script, or went away."""


class Chromium:
    """One browser with one page; a context manager that ends the whole process group."""

    def __init__(self, *, graphics=SOFTWARE_GL, width=1200, height=800, timeout=60.0):
        self.timeout, self.number, self.answers, self.events = timeout, 0, {}, []
        self.folder = tempfile.TemporaryDirectory(prefix="cartograd-chromium-", ignore_cleanup_errors=True)
        command_read, self.command_end = os.pipe()
        self.reply_end, reply_write = os.pipe()
        flags = [
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--mute-audio",
            "--force-color-profile=srgb", f"--window-size={width},{height}", f"--user-data-dir={self.folder.name}",
            *graphics, "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(command_read), str(reply_write), find_chromium(), *flags],
            pass_fds=(command_read, reply_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(command_read)
        os.close(reply_write)
        self.rest, self.session = b"", None
        try:
            self._attach(width, height)
        except BaseException:
            self.close()
            raise

    def _attach(self, width, height):
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(info["targetId"] for info in target if info["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        os.close(self.command_end)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.reply_end)
        self.folder.cleanup()

    def call(self, method, **parameters):
        """Send one command; return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        wanted = self.number
        self._send(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while wanted not in self.answers:
            self._receive(deadline)
        answer = self.answers.pop(wanted)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _send(self, data):
        while data:
            data = data[os.write(self.command_end, data) :]

    def _receive(self, deadline):
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self.reply_end], [], [], max(0.0, left))
        if not ready:
            raise BrowserError(f"no answer within {self.timeout} s")
        piece = os.read(self.reply_end, 2**20)
        if not piece:
            raise BrowserError("the browser went away")
        *whole, self.rest = (self.rest + piece).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def resize(self, width, height, *, mobile=False, scale=1):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def run(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait(self, expression):
        """Wait until an expression is true."""
        deadline = time.monotonic() + self.timeout
        while not self.run(expression):
            if time.monotonic() > deadline:
                raise BrowserError(f"not true within {self.timeout} s: {expression}")
            time.sleep(0.02)

    def open(self, address):
        """Open a page of ours and wait until it has drawn itself."""
        self.events.clear()
        self.call("Page.navigate", url="about:blank")  # a new hash alone would not load the page again
        self.call("Page.navigate", url=str(address) if "://" in str(address) else Path(address).as_uri())
        self.wait(
            "document.documentElement?.dataset.ready === 'true' || !!document.getElementById('notice')?.textContent"
        )
        self.settle()

    def settle(self):
        """Wait for two frames: what was asked for before has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def complaints(self):
        """Errors and warnings on the console, uncaught exceptions, broken policies."""
        self.run("0")
        found = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(str(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"])
        return found

    def requests(self):
        """Addresses that were asked for since the page was opened."""
        self.run("0")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x, y, **more):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1, **more)
        self.settle()

    def drag(self, places, **more):
        """Press at the first place, move over the others, let go at the last."""
        self.mouse("mousePressed", *places[0], button="left", clickCount=1, **more)
        for place in places[1:]:
            self.mouse("mouseMoved", *place, button="left", buttons=1, **more)
        self.mouse("mouseReleased", *places[-1], button="left", clickCount=1, **more)
        self.settle()

    def touch(self, kind, *places):
        """Fingers at these places; `kind` is touchStart, touchMove or touchEnd."""
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def center(self, selector):
        """The middle of an element."""
        box = self.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def press(self, selector):
        """Click in the middle of an element."""
        self.click(*self.center(selector))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, key, text=None):
        shared = {"key": key, **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def download(self, action):
        """The content of the file that `action` makes the page save."""
        with tempfile.TemporaryDirectory(prefix="cartograd-downloads-") as folder:
            self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
            action()
            deadline = time.monotonic() + self.timeout
            while time.monotonic() < deadline:
                found = [file for file in Path(folder).iterdir() if file.suffix == ".csv"]
                if found:
                    return found[0].name, found[0].read_bytes()
                time.sleep(0.02)
        raise BrowserError(f"nothing was saved within {self.timeout} s")

    def screenshot(self, path=None):
        """The window as PNG bytes, written to `path` if one is given."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path:
            Path(path).write_bytes(data)
        return data
