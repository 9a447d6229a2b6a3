"""Drives headless Chromium by the W3C WebDriver protocol, which is JSON over HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver") or ""

KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Control": "\ue009",
    "Shift": "\ue008",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference


class Browser:
    """One page; what it raises says what the driver said."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        self._post("/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self._post("/execute/sync", script=script, args=list(arguments))

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def click(self, selector: str) -> None:
        self._post(f"/element/{self._find(selector)}/click")

    def press(self, *names: str) -> None:
        """Press keys one after the other; "Control+Enter" holds the first."""
        actions = []
        for name in names:
            keys = [KEYS.get(part, part) for part in name.split("+")]
            actions += [{"type": "keyDown", "value": key} for key in keys]
            actions += [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self._post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def hover(self, selector: str) -> None:
        origin = {_ELEMENT: self._find(selector)}
        move = {"type": "pointerMove", "origin": origin, "x": 0, "y": 0, "duration": 0}
        self._post("/actions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def fill(self, selector: str, text: str) -> None:
        """Put text into a field as typing does, at once."""
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', {bubbles: true}));",
            selector,
            text,
        )

    def show_as(self, width: int, height: int, scheme: str = "light", motion: str = "") -> None:
        """A window of this size for somebody who prefers these colours, and maybe less motion."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self._cdp("Emulation.setDeviceMetricsOverride", size)
        self._cdp("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def problems(self) -> list[str]:
        """What the page has complained of since the last call."""
        entries = self._post("/se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def wait(self, holds: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        """What `holds` gives once it gives something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := holds():
                return found
            time.sleep(0.05)
        raise AssertionError(f"in {seconds} s it did not come to this: {what}")

    def _find(self, selector: str) -> str:
        found = self._post("/element", using="css selector", value=selector)
        return str(found[_ELEMENT])

    def _cdp(self, name: str, params: dict[str, Any]) -> None:
        self._post("/goog/cdp/execute", cmd=name, params=params)

    def _post(self, path: str, **body: Any) -> Any:
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _request(method, self._session + path, body)


def _request(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    try:
        with urlopen(Request(url, data, headers, method=method), timeout=120) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        told = json.load(error)["value"]
        raise AssertionError(f"{told['error']}: {told['message'].splitlines()[0]}") from None


@contextlib.contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile, gone at the end."""
    driver = subprocess.Popen(
        [DRIVER, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HOME": str(folder)},
    )
    assert driver.stdout is not None
    try:
        line = next(line for line in driver.stdout if "started successfully on port" in line)
        root = f"http://127.0.0.1:{line.rstrip().rstrip('.').split()[-1]}"
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []  # it refuses to run as root
        options = {"binary": CHROMIUM, "args": arguments}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = _request("POST", f"{root}/session", {"capabilities": {"alwaysMatch": wanted}})
        session = f"{root}/session/{made['sessionId']}"
        yield Browser(session)
        _request("DELETE", session)
    finally:
        driver.terminate()
        driver.wait()
        driver.stdout.close()
