"""A small driver of Chromium through its remote debugging: pages are opened, looked at and used, and every request and
complaint is kept."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

FOUND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# nothing leaves the machine, whatever a page asks for; a request is seen all the same
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
]


class Browser:
    """One tab: `open` a page, `run` JavaScript in it, `press` keys, `touch` a place, `shot` what is seen."""

    def __init__(self, folder):
        self.errors = []  # complaints of the console and exceptions
        self.requests = []  # addresses
        self.count = 0
        self.process = subprocess.Popen(
            [FOUND, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = self.port(Path(folder) / "DevToolsActivePort")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as f:
            tab = next(t for t in json.load(f) if t["type"] == "page")
        import websocket

        self.socket = websocket.create_connection(tab["webSocketDebuggerUrl"], suppress_origin=True, timeout=60)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def port(self, file):
        for _ in range(300):
            if file.is_file() and file.read_text().strip():
                return int(file.read_text().split()[0])
            time.sleep(0.1)
        raise RuntimeError("Chromium has not opened its port within 30 seconds")

    def close(self):
        self.process.kill()
        self.process.wait()

    def note(self, event):
        "Keep what the page complains about and what it asks for."
        what, p = event["method"], event["params"]
        if what == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            self.errors.append(p["exceptionDetails"]["text"] + str(p["exceptionDetails"].get("exception", {})))
        elif what == "Runtime.consoleAPICalled" and p["type"] in ("error", "assert"):
            self.errors.append(str([a.get("value", a.get("description")) for a in p["args"]]))
        elif what == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.errors.append(f"{p['entry']['text']} {p['entry'].get('url', '')}")

    def next(self):
        message = json.loads(self.socket.recv())
        if "method" in message:
            self.note(message)
        return message

    def ask(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps(dict(id=self.count, method=method, params=params)))
        while (message := self.next()).get("id") != self.count:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def open(self, address, width=1600, height=1000, dark=False):
        "Load a page anew; what was noted before is forgotten."
        self.errors.clear()
        self.requests.clear()
        size = dict(width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = dict(name="prefers-color-scheme", value="dark" if dark else "light")
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank' && document.readyState === 'complete'")
        self.ask("Page.navigate", url=address)
        there = json.dumps(address.partition("#")[0])
        self.wait(f"location.href.startsWith({there}) && document.readyState === 'complete'")

    def run(self, script):
        "The value of an expression."
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script, seconds=20):
        "Until an expression is true."
        end = time.time() + seconds
        while not (value := self.run(script)):
            assert time.time() < end, f"not within {seconds} s: {script}"
            time.sleep(0.1)
        return value

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def touch(self, x, y):
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[dict(x=x, y=y)])
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def shot(self, path):
        Path(path).write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
