#!/usr/bin/env python3
"""The same lookups over Oblivious HTTP (RFC 9458): client.py with another transport, on pyhpke, and a relay.

The relay is all that the door sees of the client. It keeps what it saw, for a test to look at.
"""
import argparse, hashlib, hmac, http.client, http.server, ipaddress, json, pathlib, secrets, socket, ssl, struct, threading

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf import text_format
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

import client

CLIENT, RELAY = "127.0.0.3", "127.0.0.4"

# --- RFC 9458 ---

def read_config(keys):
    """The first key of application/ohttp-keys: its number, X25519 key, and that it has HKDF-SHA256 with AES-128-GCM."""
    size = struct.unpack(">H", keys[:2])[0]
    config = keys[2:2 + size]
    number, kem = config[0], struct.unpack(">H", config[1:3])[0]
    client.require(kem == 0x20, f"a key for KEM {kem}")
    count = struct.unpack(">H", config[35:37])[0] // 4
    suites = [struct.unpack(">HH", config[37 + 4 * i:41 + 4 * i]) for i in range(count)]
    client.require((1, 1) in suites, f"suites {suites}")
    return number, config[3:35]

def hkdf(salt, secret, info, length):
    key = hmac.digest(salt, secret, hashlib.sha256)
    return hmac.digest(key, info + b"\x01", hashlib.sha256)[:length]

def seal_request(keys, request):
    """The encapsulated request, and what opens its response."""
    number, key = read_config(keys)
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
    header = struct.pack(">BHHH", number, 0x20, 1, 1)
    enc, context = suite.create_sender_context(suite.kem.deserialize_public_key(key),
                                               b"message/bhttp request\x00" + header)
    sealed = header + enc + context.seal(request)

    def open_response(response):
        secret = context.export(b"message/bhttp response", 16)
        nonce, sealed_response = response[:16], response[16:]
        salt = enc + nonce
        return AESGCM(hkdf(salt, secret, b"key", 16)).decrypt(hkdf(salt, secret, b"nonce", 12), sealed_response, b"")
    return sealed, open_response

# --- binary HTTP, RFC 9292 ---

def varint(number):
    for bits, mark in ((6, 0), (14, 1), (30, 2)):
        if number < 1 << bits:
            return (mark << bits | number).to_bytes((bits + 2) // 8, "big")
    raise SystemExit("client: too long")

def blob(data):
    return varint(len(data)) + data

def encode_request(method, path, fields, content):
    section = b"".join(blob(name) + blob(value) for name, value in fields)
    return (varint(0) + blob(method) + blob(b"https") + blob(b"door") + blob(path) + blob(section) + blob(content)
            + varint(0))

def decode_response(data):
    def number(at):
        size = 1 << (data[at] >> 6)
        return int.from_bytes(data[at:at + size], "big") & (1 << (8 * size - 2)) - 1, at + size
    kind, at = number(0)
    client.require(kind == 1, "no response")
    status, at = number(at)
    size, at = number(at)
    fields, end = {}, at + size
    while at < end:
        size, at = number(at)
        name, at = data[at:at + size], at + size
        size, at = number(at)
        fields[name], at = data[at:at + size], at + size
    size, at = number(end)
    return status, fields, data[at:at + size]

# --- the client ---

class Oblivious(client.Frontend):
    def __init__(self, relay, keys, messages, tokens=()):
        self.messages, self.certificate, self.keys, self.tokens = messages, None, keys, list(tokens)
        self.connection = http.client.HTTPConnection(relay, timeout=120, source_address=(CLIENT, 0))
        self.socket, self.left, self.status = self, b"", None
        self.frames = []

    def request(self, method, path, fields, content):
        sealed, open_response = seal_request(self.keys, encode_request(method, path, fields, content))
        self.connection.request("POST", "/relay", sealed, {"Content-Type": "message/ohttp-req"})
        response = self.connection.getresponse()
        body = response.read()
        client.require(response.status == 200, f"the relay answers {response.status}")
        client.require(response.getheader("Content-Type") == "message/ohttp-res", "no response of Oblivious HTTP")
        return decode_response(open_response(body))

    def sendall(self, frame):
        fields = []
        if frame[4] == 20 and self.tokens:
            fields.append((b"authorization", self.tokens.pop(0).encode()))
        self.frames.append(frame)
        self.status, self.fields, self.left = self.request(b"POST", b"/v1/call", fields, frame)
        self.frames.append(self.left)

    def read(self, count):
        data, self.left = self.left[:count], self.left[count:]
        client.require(len(data) == count, "half a frame")
        return data

# --- the relay ---

def peers_of(port):
    """Where the connections to this port come from that are open now."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {str(ipaddress.ip_address(int(row[2][:8], 16).to_bytes(4, "little"))) for row in rows
            if row[3] == "01" and row[1].endswith(f":{port:04X}")}

class Relay(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen, clients, at_door = [], set(), set()
    door, context = None, None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        connection = http.client.HTTPSConnection(self.door, context=self.context, timeout=120, source_address=(RELAY, 0))
        connection.request("POST", "/v1/ohttp", body, {"Content-Type": self.headers["Content-Type"]})  # and nothing else
        Relay.at_door |= peers_of(int(self.door.rsplit(":", 1)[1]))
        response = connection.getresponse()
        answer = response.read()
        Relay.seen += [body, answer]
        Relay.clients.add(self.client_address[0])
        self.send_response(response.status)
        self.send_header("Content-Type", response.getheader("Content-Type"))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *unused):
        pass

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pinned", required=True)
    parser.add_argument("--authority", required=True)
    parser.add_argument("--pad", type=int, default=8)
    parser.add_argument("--tokens")
    parser.add_argument("door", help="host:port")
    parser.add_argument("key", nargs="+")
    arguments = parser.parse_args()
    client_pb2, roster_pb2 = client.load_messages()
    pins = text_format.Parse(pathlib.Path(arguments.pinned).read_text(), roster_pb2.PinnedParties())
    context = ssl.create_default_context(cafile=arguments.authority)

    # Keys come from the door, once, and not over the relay.
    connection = http.client.HTTPSConnection(arguments.door, context=context)
    connection.request("GET", "/v1/ohttp-keys")
    response = connection.getresponse()
    keys = response.read()
    client.require(response.getheader("Content-Type") == "application/ohttp-keys", f"no keys: {response.status}")
    connection.close()

    Relay.door, Relay.context = arguments.door, context
    relay = http.server.ThreadingHTTPServer((RELAY, 0), Relay)
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    tokens = pathlib.Path(arguments.tokens).read_text().splitlines() if arguments.tokens else []
    frontend = Oblivious(f"{RELAY}:{relay.server_address[1]}", keys, client_pb2, tokens)
    wanted = [key.encode() for key in arguments.key]
    client.show(wanted, client.look_up(frontend, pins, wanted, arguments.pad))

    # The relay saw the client's address and not a byte of any frame; the door's connections came from the relay.
    client.require(len(Relay.seen) == len(frontend.frames) and Relay.clients == {CLIENT}, "the relay saw other requests")
    client.require(Relay.at_door == {RELAY}, f"the door saw {Relay.at_door}")
    for wire in Relay.seen:
        for frame in frontend.frames:
            pieces = [frame[at:at + 16] for at in range(0, len(frame) - 15, 16)] or [frame]
            client.require(not any(piece in wire for piece in pieces), "the relay saw a part of a frame")
        client.require(b"/v1/call" not in wire and b"SHL3" not in wire, "the relay saw what was asked")

    # What else a client may ask, and what a relay may bring.
    status, _, _ = frontend.request(b"GET", b"/metrics", [], b"")
    client.require(status == 404, f"another path: {status}")
    status, _, body = frontend.request(b"POST", b"/v1/call", [], frontend.frames[0][:4] + b"\x45" + frontend.frames[0][5:])
    client.require(status == 400 and body[:4] == b"SHL3", f"a request of a party: {status}")
    if tokens:
        onions = struct.pack("<4sHHIQ", b"SHL3", 20, 0, 0, 0)
        status, fields, _ = frontend.request(b"POST", b"/v1/call", [(b"authorization", tokens[0].encode())], onions)
        client.require(status == 401 and fields[b"www-authenticate"].startswith(b"PrivateToken challenge="), f"spent twice: {status}")
    def bring(sealed):
        connection = http.client.HTTPSConnection(arguments.door, context=context)
        connection.request("POST", "/v1/ohttp", sealed, {"Content-Type": "Message/OHTTP-Req; x=y"})
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type"), response.read()
    # Another key's number, another key with that number, other bytes, and what another suite sealed: the client is to get the keys
    # again (RFC 9458, section 5.3).
    own = Relay.seen[0]
    for stale in (bytes([own[0] ^ 0x55]) + own[1:], own[:-1] + bytes([own[-1] ^ 1]), b"x" * 100, secrets.token_bytes(5000),
                  own[:6] + b"\x02" + own[7:]):
        status, kind, body = bring(stale)
        client.require(status == 400 and kind == "application/problem+json", f"for another key: {status}, {kind}")
        client.require(json.loads(body)["type"] == "https://iana.org/assignments/http-problem-types#ohttp-key", f"{body}")
    # What is sealed well and is no request, and nothing.
    for malformed in (seal_request(keys, b"\x09nonsense")[0], b""):
        status, kind, _ = bring(malformed)
        client.require(status == 400 and kind == "application/octet-stream", f"no request: {status}, {kind}")
    # `Expect: 100-continue`, as curl sends it with large bodies.
    with context.wrap_socket(socket.create_connection(arguments.door.rsplit(":", 1), timeout=60), server_hostname="127.0.0.1") as stream:
        stream.sendall(b"POST /v1/ohttp HTTP/1.1\r\nHost: door\r\nContent-Type: message/ohttp-req\r\nExpect: 100-continue\r\n"
                       b"Content-Length: 5\r\n\r\n")
        begun = stream.recv(100)
        client.require(begun.startswith(b"HTTP/1.1 100 "), f"it is not asked for the body: {begun}")

if __name__ == "__main__":
    main()
