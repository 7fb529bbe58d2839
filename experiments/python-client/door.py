#!/usr/bin/env python3
"""The same lookups through a door (docs/door.md), over WebSocket or over HTTPS: client.py with another transport.

Each value of --attack keeps somebody else busy at the door meanwhile, from 127.0.0.2.
"""
import argparse, http.client, pathlib, socket, ssl, threading, time

import websockets.sync.client
from google.protobuf import text_format

import client

STRANGER = ("127.0.0.2", 0)

class Door(client.Frontend):
    """Frames as messages of a WebSocket, or, with `post`, as the bodies of requests. Each request for slots spends
    one of `tokens`, if there are any: values of Authorization."""
    def __init__(self, address, authority, messages, post, tokens=()):
        self.messages, self.post, self.certificate = messages, post, None  # the door's, which an authority signed
        self.socket, self.left, self.sent, self.tokens = self, b"", 0, list(tokens)
        self.context = ssl.create_default_context(cafile=authority)
        if post:
            self.connection = http.client.HTTPSConnection(address, context=self.context, timeout=120)
        else:
            connect = websockets.sync.client.connect(
                f"wss://{address}/v1/ws", ssl=self.context, compression=None, max_size=5 << 20)
            self.connection = connect.__enter__()  # for as long as this object

    def sendall(self, frame):
        self.sent += len(frame)
        token = self.tokens.pop(0) if frame[4] == 20 and self.tokens else None  # SubmitOnions
        if self.post:
            headers = {"Content-Type": "application/octet-stream", **({"Authorization": token} if token else {})}
            self.connection.request("POST", "/v1/call", frame, headers)
            response = self.connection.getresponse()
            self.left = response.read()  # with another status than 200, the door's own error
        else:
            if token:
                self.connection.send(token)
                answer = self.connection.recv(timeout=120)
                if answer != "ok":
                    self.left = answer
                    return
            self.connection.send(frame)
            self.left = self.connection.recv(timeout=120)

    def read(self, count):
        data, self.left = self.left[:count], self.left[count:]
        client.require(len(data) == count, "half a frame")
        return data

# --- attacks ---

def tls(address, authority):
    host, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=authority)
    return context.wrap_socket(socket.create_connection((host, int(port)), timeout=60, source_address=STRANGER),
                               server_hostname=host)

def open_socket(address, authority):
    stream = tls(address, authority)
    stream.sendall(b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                   b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    stream.recv(4096)
    return stream

def frame(kind, control=b""):
    return client.struct.pack("<4sHHIQ", b"SHL3", kind, 0, len(control), 0) + control

def masked(opcode, payload):
    assert len(payload) < 126
    return bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload

def endless_body(address, authority):
    stream = tls(address, authority)
    stream.sendall(b"POST /v1/call HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    head = client.struct.pack("<4sHHIQ", b"SHL3", 20, 0, 4 << 20, 0)
    stream.sendall(b"14\r\n" + head + b"\r\n")
    while True:
        stream.sendall(b"1000\r\n" + bytes(4096) + b"\r\n")

def small_frames(address, authority):
    stream = open_socket(address, authority)
    for _ in range(1000):
        stream.sendall(masked(9, b"") * 1000)

def small_requests(address, authority):
    stream = open_socket(address, authority)
    for _ in range(1000):
        stream.sendall(masked(2, frame(18)) * 1000)

def stalls(address, authority):
    stream = open_socket(address, authority)  # asks, and reads no answer
    for _ in range(1000):
        stream.sendall(masked(2, frame(23)))
    time.sleep(30)

def slow_heads(address, authority):
    streams = [tls(address, authority) for _ in range(50)]
    while True:
        for stream in streams:
            stream.sendall(b"P")
        time.sleep(0.5)

def foreign_page(address, authority):
    connection = http.client.HTTPSConnection(address, context=ssl.create_default_context(cafile=authority))
    connection.request("POST", "/v1/call", frame(18), {"Origin": "https://evil.example"})
    if connection.getresponse().status != 403:
        fail.append("a page of another origin was served")
    time.sleep(0.1)

def requests_of_parties(address, authority):
    connection = http.client.HTTPSConnection(address, context=ssl.create_default_context(cafile=authority))
    connection.request("POST", "/v1/call", frame(69))
    if connection.getresponse().status != 400:
        fail.append("a party's request was passed")
    time.sleep(0.1)

ATTACKS = [endless_body, small_frames, small_requests, stalls, slow_heads, foreign_page, requests_of_parties]
fail, stopping = [], threading.Event()

def attack(what, *where):
    while not stopping.is_set():
        try:
            what(*where)
        except OSError:
            time.sleep(0.02)  # refused, or cut

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pinned", required=True, help="text-format shoal.wire.PinnedParties")
    parser.add_argument("--authority", required=True, help="PEM: who signed the door's certificate")
    parser.add_argument("--pad", type=int, default=16, help="queries come in multiples of this")
    parser.add_argument("--post", action="store_true", help="over HTTPS, in place of a WebSocket")
    parser.add_argument("--attack", action="store_true", help="while all attacks of this file go on")
    parser.add_argument("--tokens", help="a file with values of Authorization, one a line: a lookup spends the first")
    parser.add_argument("--probe", action="store_true", help="only ask for slots, without onions, and say how that is refused")
    parser.add_argument("--bytes", action="store_true", help="also print how many bytes of frames were sent")
    parser.add_argument("door", help="host:port")
    parser.add_argument("key", nargs="+")
    arguments = parser.parse_args()
    client_pb2, roster_pb2 = client.load_messages()
    pins = text_format.Parse(pathlib.Path(arguments.pinned).read_text(), roster_pb2.PinnedParties())
    if arguments.attack:
        for what in ATTACKS:
            threading.Thread(target=attack, args=(what, arguments.door, arguments.authority), daemon=True).start()
        time.sleep(1)
    keys = [key.encode() for key in arguments.key]
    tokens = pathlib.Path(arguments.tokens).read_text().splitlines() if arguments.tokens else []
    door = Door(arguments.door, arguments.authority, client_pb2, arguments.post, tokens)
    if arguments.probe:
        door.call(20, "SubmitOnions")
    client.show(keys, client.look_up(door, pins, keys, arguments.pad))
    if arguments.bytes:
        print("sent", door.sent, sep="\t")
    stopping.set()
    client.require(not fail, "; ".join(fail))

if __name__ == "__main__":
    main()
