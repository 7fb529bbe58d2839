#!/usr/bin/env python3
"""Requests of which two programs on the way may see other ends, sent through a proxy to a door (docs/door.md).

  proxies.py lax DOOR ADDRESS     through a proxy of this file, at this address, which forwards framing that it does not understand
  proxies.py at PROXY AUTHORITY   through another proxy, over TLS

Behind such a request a second one is hidden. Another client then asks through the same connection to the door, and must get
the answer to its own question, or none.
"""
import concurrent.futures, itertools, re, socket, ssl, struct, sys, threading

LIST_ROUNDS, GET_STATUS = 18, 23

def frame(kind):
    return struct.pack("<4sHHIQ", b"SHL3", kind, 0, 0, 0)

def post(body, fields=b"", version=b"1.1"):
    return (b"POST /v1/call HTTP/" + version + b"\r\nHost: door.example\r\n" + fields + b"Content-Length: "
            + str(len(body)).encode() + b"\r\n\r\n" + body)

def request(fields, body=b"", line=b"POST /v1/call HTTP/1.1"):
    return line + b"\r\nHost: door.example\r\n" + fields + b"\r\n\r\n" + body

def chunks(body, extension=b"", trailers=b""):
    return f"{len(body):x}".encode() + extension + b"\r\n" + body + b"\r\n0\r\n" + trailers + b"\r\n"

# It is complete in itself, or takes what comes next for its body. It names a client, as no proxy does it for it.
NAMES = b"X-Forwarded-For: 192.0.2.66\r\n"
HIDDEN = post(frame(GET_STATUS), NAMES)
SWALLOWS = request(NAMES + b"Content-Length: 200", frame(GET_STATUS))

def inputs():
    """{what: bytes of one client}."""
    given = {}
    own = frame(LIST_ROUNDS)
    for name, hidden in (("hidden", HIDDEN), ("swallows", SWALLOWS)):
        def add(what, data):
            given[f"{what}, {name}"] = data  # pylint: disable=cell-var-from-loop
        def both(what, fields, body):
            """Also where the door answers without a body, and reads on."""
            add(what, request(fields, body))
            add(f"{what} of OPTIONS", request(fields, body, b"OPTIONS /v1/call HTTP/1.1"))
        length = b"Content-Length: " + str(len(hidden)).encode()
        for value in (b"gzip", b"chunked, chunked", b"identity", b"chunked, gzip", b"gzip, chunked", b"xchunked", b"chunked;x", b"",
                      b"\x0bchunked", b"chunked\x00", b"\"chunked\"", b"chunk"):
            both(f"Transfer-Encoding {value}", b"Transfer-Encoding: " + value, hidden)
            both(f"Transfer-Encoding {value} in chunks", b"Transfer-Encoding: " + value, chunks(hidden))
            both(f"Transfer-Encoding {value} and a length", b"Transfer-Encoding: " + value + b"\r\n" + length, hidden)
            both(f"a length and Transfer-Encoding {value}", length + b"\r\nTransfer-Encoding: " + value, hidden)
        for te in (b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding\t:chunked", b"Transfer-Encoding:\r\n chunked",
                   b"X: y\r\n Transfer-Encoding: chunked", b"X: y\nTransfer-Encoding: chunked", b"\x00Transfer-Encoding: chunked",
                   b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked"):
            both(f"{te} and a length", te + b"\r\n" + length, b"0\r\n\r\n" + hidden)
            both(f"a length and {te}", length + b"\r\n" + te, b"0\r\n\r\n" + hidden)
            both(f"{te} alone", te, chunks(hidden))
        add("chunked in HTTP/1.0", request(b"Connection: keep-alive\r\nTransfer-Encoding: chunked", chunks(hidden), b"POST /v1/call HTTP/1.0"))
        for value in (b"0", b"+" + length[16:], b"0x0", b"0" + length[16:], b"0, " + length[16:], length[16:] + b" 0", b"-1", b"0.0", b"\x30\x00"):
            both(f"Content-Length {value}", b"Content-Length: " + value, hidden)
            both(f"{value} and another", b"Content-Length: " + value + b"\r\n" + length, hidden)
            both(f"another and {value}", length + b"\r\nContent-Length: " + value, hidden)
        for name_of in (b"Content-Length :", b"Content-Length\t:", b" Content-Length:", b"X: y\r\n Content-Length:", b"Content\x00-Length:"):
            both(f"{name_of}", name_of + b" " + length[16:], hidden)
        add("bare line feeds", request(b"", b"").replace(b"\r\n", b"\n") + hidden)
        add("bare line feeds around a length", request(b"X: y\n" + length, hidden))
        add("a body of GET", request(length, hidden, b"GET /v1/token-challenge HTTP/1.1"))
        add("a body of OPTIONS", request(length, hidden, b"OPTIONS /v1/call HTTP/1.1"))
        add("a body of a WebSocket", request(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                             b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + length, hidden, b"GET /v1/ws HTTP/1.1"))
        add("a WebSocket of another version", request(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\n"
                                                      b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", hidden, b"GET /v1/ws HTTP/1.1"))
        for extension in (b";x", b";x=\"\n\"", b" ", b";\n", b"\n", b"\r"):
            add(f"chunk extension {extension}", request(b"Transfer-Encoding: chunked", chunks(own, extension) + hidden))
        add("a trailer", request(b"Transfer-Encoding: chunked", chunks(own, trailers=length + b"\r\n") + hidden))
        add("a chunk that goes on", request(b"Transfer-Encoding: chunked", b"14\r\n" + own + b"xx0\r\n\r\n" + hidden))
        add("a length beyond 64 bits", request(b"Transfer-Encoding: chunked", b"10000000000000014\r\n" + own + b"\r\n0\r\n\r\n" + hidden))
        add("Expect, and no wait", post(own, b"Expect: 100-continue\r\n") + hidden)
        add("another Host", request(b"Host: other\r\n" + length, hidden))
    return given

def read_response(stream, left=b""):
    """(status, content type's frame, the rest), of one response; None without one."""
    data = left
    while True:
        while b"\r\n\r\n" not in data:
            more = stream.recv(65536)
            if not more:
                return None
            data += more
        head, data = data.split(b"\r\n\r\n", 1)
        status = int(head[9:12])
        found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        length = int(found[1]) if found else 0
        while len(data) < length:
            more = stream.recv(65536)
            if not more:
                return None
            data += more
        if status != 100:
            return status, data[:length], data[length:]

# --- a lax proxy ---

class Lax:
    """Passes the bytes of all its clients on over one connection, one request after the other. Where a request ends it finds in
    any way that some program has found it; what it does not understand it passes on as it is."""
    def __init__(self, door, own, encoding, which):
        self.door, self.own, self.encoding, self.which = door, own, encoding, which
        self.upstream, self.left, self.lock, self.surplus = None, b"", threading.Lock(), False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def body(self, head, rest, client):
        """(how many bytes of `rest` are the body, with what had to be read), or None."""
        text = head.replace(b"\x00", b"").replace(b"\r", b"")
        text = re.sub(rb"\n[ \t]+", b" ", text)
        fields = [(name.strip().lower(), value.strip()) for name, colon, value in
                  (line.partition(b":") for line in text.split(b"\n")[1:]) if colon]
        encodings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
        lengths = [value for name, value in fields if name == b"content-length"]
        if encodings and self.encoding != "ignored" and (self.encoding == "any" or b"chunked" in encodings[-1]):
            end = rest.find(b"0\r\n")
            return (rest.find(b"\r\n\r\n", end) + 4, rest) if end >= 0 else None
        if lengths:
            digits = re.search(rb"\d+", lengths[0 if self.which == "first" else -1].split(b",")[0 if self.which == "first" else -1])
            length = int(digits[0]) if digits else 0
            while len(rest) < length:
                more = client.recv(65536)
                if not more:
                    return None
                rest += more
            return length, rest
        if encodings:  # of a kind that it does not know: all that the client sends
            return len(rest), rest
        return 0, rest

    def serve(self, client):
        client.settimeout(10)
        data = b""
        try:
            while True:
                end = re.search(rb"\r?\n\r?\n", data)
                if not end:
                    more = client.recv(65536)
                    if not more:
                        return
                    data += more
                    continue
                head, rest = data[:end.end()], data[end.end():]
                found = self.body(head, rest, client)
                if found is None:
                    return
                size, rest = found
                answer = self.exchange(head, rest[:size])
                if answer is None:
                    return
                client.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (answer[0], len(answer[1])) + answer[1])
                data = rest[size:]
        except OSError:
            pass
        finally:
            client.close()

    def exchange(self, head, body):
        """It names a client, as a proxy has to, and leaves the rest as it is."""
        line, newline, fields = head.partition(b"\n")
        data = line + newline + b"X-Forwarded-For: 192.0.2.1\r\n" + fields + body
        with self.lock:
            for _ in range(2):  # where the connection has ended
                if self.upstream is None:
                    self.upstream, self.left = socket.create_connection(self.door, timeout=20, source_address=(self.own, 0)), b""
                try:
                    self.upstream.sendall(data)
                    answer = read_response(self.upstream, self.left)
                except OSError:
                    answer = None
                if answer is not None:
                    self.left = answer[2]
                    self.surplus |= bool(self.left)
                    return answer
                self.upstream.close()
                self.upstream = None
        return None

    def close(self):
        self.listener.close()
        if self.upstream:
            self.upstream.close()

# --- the clients ---

def attack(stream, data):
    """Sends it, and takes what comes for a moment."""
    stream.settimeout(0.15)
    answers = b""
    try:
        stream.sendall(data)
        while True:
            more = stream.recv(65536)
            if not more:
                break
            answers += more
    except OSError:
        pass
    return answers

def victim(connect):
    """What another client gets that asks for the rounds: None, or (status, type of the frame)."""
    try:
        with connect() as stream:
            stream.settimeout(20)
            stream.sendall(post(frame(LIST_ROUNDS)))
            answer = read_response(stream)
    except OSError:
        return None
    if answer is None:
        return None
    return answer[0], answer[1][4] if answer[1].startswith(b"SHL3") else None

def try_all(connect, where, surplus=lambda: False):
    """Returns (what went wrong, how many requests of another client were answered)."""
    faults, served = [], 0
    for what, data in inputs().items():
        with connect() as stream:
            attack(stream, data)
            for _ in range(2):
                got = victim(connect)
                if got is None or got[0] != 200:
                    continue
                served += 1
                if got[1] != LIST_ROUNDS:
                    faults.append(f"{where}: {what}: another client got the answer to another question, {got}")
        if surplus():
            faults.append(f"{where}: {what}: more answers than questions")
    return faults, served

def through_lax(door, own, encoding, which):
    proxy = Lax(door, own, encoding, which)
    def surplus():
        seen, proxy.surplus = proxy.surplus, False
        return seen
    found = try_all(lambda: socket.create_connection(proxy.address, timeout=20),
                    f"encodings {encoding}, the {which} length", surplus)
    proxy.close()
    return found

def main():
    mode, address, *rest = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    target = (host, int(port))
    if mode == "lax":
        kinds = list(itertools.product(("chunked", "any", "ignored"), ("first", "last")))
        with concurrent.futures.ThreadPoolExecutor(len(kinds)) as pool:
            found = list(pool.map(lambda kind: through_lax(target, rest[0], *kind), kinds))
    else:
        context = ssl.create_default_context(cafile=rest[0])
        found = [try_all(lambda: context.wrap_socket(socket.create_connection(target, timeout=20), server_hostname=host),
                         address)]
    faults, served = sum((faults for faults, _ in found), []), sum(count for _, count in found)
    tried = len(inputs()) * len(found)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{tried} inputs, {len(faults)} faults, {served} of {2 * tried} requests of others answered")
    # Nobody is held up: what a proxy has to send again it sends again.
    sys.exit(bool(faults) or served < 2 * tried * 9 // 10)

if __name__ == "__main__":
    main()
