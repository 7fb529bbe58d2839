#!/usr/bin/env python3
"""Serves the page of web/dist, for scripts/web: on this machine alone.

  GET /, /shoal.js, /style.css     what is shipped in web/dist
  GET /pinned.textproto            the parties that the page trusts
  GET /about.json                  where the door is, which keys are offered, and what the visitor may do
  POST /play/spoil, /play/honest   ends the last party, and starts it again: with a row spoiled, or not
  POST /play/query                 asks with `shoal query`, the client in C++

The page asks the parties through a door of its own (docs/door.md), which this program starts beside
them. No question passes this server.
"""
import argparse
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/shoal.js": ("shoal.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}
# The page runs its own program, speaks to its own server and the door, and nobody frames it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' {door} {sockets}; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Refusal(Exception):
    """What a request is answered with instead."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Chain:
    """A deployment of scripts/local-chain."""

    def __init__(self, arguments):
        self.directory = pathlib.Path(arguments.chain)
        self.local_chain = arguments.local_chain
        self.bin = pathlib.Path(arguments.bin)
        self.pad = arguments.pad
        self.devices = arguments.devices
        self.keys = pathlib.Path(arguments.keys).read_text(encoding="utf-8").splitlines()
        self.last = max(int(p.stem[6:]) for p in self.directory.glob("party-?.textproto"))
        self.spoiler = self.bin / "shoald" / "spoiling_shoald"
        self.door = None
        # One visitor plays at a time.
        self.playing = threading.Lock()

    def about(self):
        return {
            "door": self.door.url + "/v1/call",
            "pad": self.pad,
            "keys": self.keys,
            "demonstration": True,
            "canSpoil": self.spoiler.exists(),
        }

    def restart_last(self, row):
        """The last party as it is, or with a spoiled row."""
        if row is not None and not self.spoiler.exists():
            raise Refusal(404, f"no {self.spoiler}")
        with self.playing, tempfile.TemporaryDirectory() as programs:
            environment = dict(os.environ, SHOAL_BIN=str(self.bin))
            if row is not None:
                for folder, name, program in (
                    ("shoal", "shoal", self.bin / "shoal" / "shoal"),
                    ("shoald", "shoald", self.spoiler),
                ):
                    os.mkdir(os.path.join(programs, folder))
                    os.symlink(program.resolve(), os.path.join(programs, folder, name))
                environment = dict(environment, SHOAL_BIN=programs, SHOAL_SPOIL_ROW=str(row))
            pid = self.directory / f"party-{self.last}.pid"
            end(int(pid.read_text(encoding="utf-8")))
            subprocess.run(
                [self.local_chain, "start-party", str(self.directory), str(self.last)],
                check=True,
                env=environment,
                stdin=subprocess.DEVNULL,
            )

    def query(self, key):
        shoal = self.bin / "shoal" / "shoal"
        with tempfile.TemporaryDirectory() as own:
            # A client of its own each time: its state is not the visitor's.
            config = (self.directory / "client.textproto").read_text(encoding="utf-8")
            config = config.replace('"pinned.textproto"', json.dumps(str(self.directory / "pinned.textproto")))
            path = pathlib.Path(own) / "client.textproto"
            path.write_text(config, encoding="utf-8")
            done = subprocess.run(
                [shoal, "query", "--config", path, f"--key={key}"],
                capture_output=True,
                timeout=180,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        return {
            "command": f"shoal query {key}",
            "exitCode": done.returncode,
            "output": done.stdout.decode("utf-8", "replace")[:2000],
            "errors": done.stderr.decode("utf-8", "replace")[-2000:],
        }

    def crowd(self):
        """Simulated devices that ask for keys of their own, in one round after the other."""
        while self.devices > 0:
            subprocess.run(
                [
                    self.bin / "shoal" / "shoal", "simulate",
                    "--config", self.directory / "client.textproto", "--table", self.directory / "table",
                    "--devices", str(self.devices), "--apps", "1-3", "--pad", str(self.pad),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            # Where the last party lies, a crowd's lookups fail at once.
            time.sleep(1)


class Door:
    """shoal-door before party 1, over plain HTTP on this machine, for the page at `page_port`."""

    def __init__(self, arguments, page_port):
        port = arguments.door_port or free_port()
        self.url = arguments.door_url or f"http://127.0.0.1:{port}"
        directory = pathlib.Path(arguments.chain)
        config = directory / "door.textproto"
        config.write_text(
            f'listen_address: "127.0.0.1:{port}"\n'
            'roster_file: "roster.textproto"\n'
            'pinned_parties_file: "pinned.textproto"\n'
            f'allowed_origins: "http://localhost:{page_port}"\n'
            f'allowed_origins: "http://127.0.0.1:{page_port}"\n',
            encoding="utf-8",
        )
        log = directory / "door.log"
        program = pathlib.Path(arguments.bin) / "door" / "shoal-door"
        with open(log, "wb") as file:
            # pylint: disable-next=consider-using-with  # `end` ends it
            self.process = subprocess.Popen(
                [program, "--config", config], stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        while "listens on" not in log.read_text(encoding="utf-8", errors="replace"):
            if self.process.poll() is not None:
                sys.exit(f"serve: the door ended: {log.read_text(encoding='utf-8', errors='replace')}")
            time.sleep(0.05)

    def policy(self):
        return POLICY.format(door=self.url, sockets=self.url.replace("http", "ws", 1))

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def end(pid):
    """Ends a party of this chain, and waits until it has ended."""
    os.kill(pid, signal.SIGTERM)
    for _ in range(150):
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1][0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.1)
    raise Refusal(500, "the last party does not end")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    chain = None
    dist = None

    def log_message(self, *_):
        pass  # who asks what kind of request when is nobody's business

    def check_origin(self):
        """Pages of others, and names of others that lead here, get nothing."""
        host = self.headers.get("Host", "")
        if not re.fullmatch(r"(localhost|127\.0\.0\.1)(:\d{1,5})?", host):
            raise Refusal(403, "this page is for this machine alone")
        origin = self.headers.get("Origin")
        if origin not in (None, f"http://{host}"):
            raise Refusal(403, "a page of another origin")

    def body(self, limit):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,9}", length) or int(length) > limit:
            self.close_connection = True
            raise Refusal(413, "a body that is too long, or has no length")
        return self.rfile.read(int(length))

    def answer(self, status, kind, data):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", self.chain.door.policy())
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def serve(self, work):
        try:
            self.check_origin()
            self.answer(200, *work())
        except Refusal as refusal:
            self.close_connection = True
            self.answer(refusal.status, "text/plain; charset=utf-8", str(refusal).encode())
        except (subprocess.SubprocessError, OSError) as error:
            self.close_connection = True
            self.answer(500, "text/plain; charset=utf-8", str(error).encode())

    def do_GET(self):  # pylint: disable=invalid-name
        def work():
            if self.path in FILES:
                name, kind = FILES[self.path]
                return kind, (self.dist / name).read_bytes()
            if self.path == "/pinned.textproto":
                return "text/plain; charset=utf-8", (self.chain.directory / "pinned.textproto").read_bytes()
            if self.path == "/about.json":
                return "application/json", json.dumps(self.chain.about()).encode()
            raise Refusal(404, "no such page")

        self.serve(work)

    def do_POST(self):  # pylint: disable=invalid-name
        def work():
            try:
                asked = json.loads(self.body(4096))
            except ValueError as error:
                raise Refusal(400, "no JSON") from error
            if not isinstance(asked, dict):
                raise Refusal(400, "no JSON object")
            if self.path == "/play/spoil":
                row = asked.get("row")
                if type(row) is not int or not 0 <= row < 2**31:  # pylint: disable=unidiomatic-typecheck
                    raise Refusal(400, "no row")
                self.chain.restart_last(row)
                return "application/json", b"{}"
            if self.path == "/play/honest":
                self.chain.restart_last(None)
                return "application/json", b"{}"
            if self.path == "/play/query":
                key = asked.get("key")
                if not isinstance(key, str) or not 0 < len(key) <= 200 or "\0" in key:
                    raise Refusal(400, "no key")
                return "application/json", json.dumps(self.chain.query(key)).encode()
            raise Refusal(404, "no such page")

        self.serve(work)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chain", required=True, help="the directory of scripts/local-chain, started")
    parser.add_argument("--local-chain", required=True, help="scripts/local-chain")
    parser.add_argument("--bin", required=True, help="the folder of the programs")
    parser.add_argument("--dist", required=True, help="web/dist")
    parser.add_argument("--keys", required=True, help="keys to offer, one a line")
    parser.add_argument("--pad", type=int, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--port", type=int, required=True, help="0: any free one")
    parser.add_argument("--door-port", type=int, default=0, help="0: any free one")
    parser.add_argument("--door-url", help="where the page finds the door, if it is not at that port")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Handler.chain = Chain(arguments)
    Handler.dist = pathlib.Path(arguments.dist)
    server = Server(("127.0.0.1", arguments.port), Handler)
    port = server.server_address[1]
    Handler.chain.door = Door(arguments, port)
    try:
        threading.Thread(target=Handler.chain.crowd, daemon=True).start()
        print(f"the page is at http://localhost:{port}/", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        Handler.chain.door.end()


if __name__ == "__main__":
    main()
