"""Which epoch changed each row of a table last: lists that the manifest commits to. From docs/protocol.md,
sections 1 and 4. `client.py` verifies each row's signature for the epoch and the digest that these lists name.
"""

def require(condition, message):
    if not condition:
        raise SystemExit("client: " + message)

def fields(manifest):
    """Of the manifest's transcript."""
    m = manifest.row_versions
    return (m.base_rows, m.base_bytes, m.base_digest, m.previous_bytes, m.previous_digest,
            m.recent_bytes, m.recent_digest)

def decode(data, rows, first, last, complete):
    """For every row the epoch of its last change and the digest of that epoch's rows; None for a row
    that the list does not name."""
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            require(at < len(data) and shift < 70, "list: a number")
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            if byte < 128:
                require((byte or not shift) and value < 2**64, "list: a number")
                return value
            shift += 7
    require(varint() == rows, "list: another number of rows")
    classes = []
    count = varint()
    require(count <= min(rows, 4097), "list: too many epochs")
    unlisted = varint() if rows else 0
    epoch = 0
    for i in range(count):
        step = varint()
        epoch += step
        require(step or i == 0, "list: an epoch twice")
        require(first < epoch <= last if epoch else not complete, "list: an epoch out of its block")
        digest, at = (data[at:at + 32], at + 32) if epoch else (b"", at)
        classes.append((varint(), (epoch, digest) if epoch else None))
    sizes = [size for size, _ in classes]
    require(sum(sizes) == rows and 0 not in sizes, "list: another number of rows")
    require(not rows or unlisted == sizes.index(max(sizes)), "list: the class that is not listed")
    of, position, end = [-1] * rows, 8 * at, 8 * len(data)
    def bit():
        nonlocal position
        require(position < end, "list: it ends too early")
        position += 1
        return data[position - 1 >> 3] >> (position - 1 & 7) & 1
    for i, size in enumerate(sizes):
        if i == unlisted:
            continue
        k, row = 0, -1
        while k < 31 and 128 * size << k + 1 <= 123 * rows:
            k += 1
        for _ in range(size):
            high = 0
            while not bit():
                high += 1
            row += 1 + (high << k) + sum(bit() << j for j in range(k))
            require(row < rows and of[row] < 0, "list: a row that is not there, or twice")
            of[row] = i
    require(len(data) == (position + 7) // 8 and not any(bit() for _ in range(end - position)),
            "list: more bytes than it needs")
    return [classes[unlisted if i < 0 else i][1] for i in of]

def fetch(frontend, manifest, manifest_digest, transcript):
    """For every row the epoch of its last change and the digest of that epoch's rows."""
    lists, base_epoch = manifest.row_versions, (manifest.epoch - 1) // 8 * 8
    def whole(number, size, digest):
        data = b""
        while len(data) < size:
            data += frontend.call(24, "GetRowVersions", manifest_digest=manifest_digest,
                                  list=number, offset=len(data), max_bytes=1 << 20).data
        require(transcript("shoal row versions v1", data) == digest, "another list of rows' epochs")
        return data
    previous = whole(2, lists.previous_bytes, lists.previous_digest)
    recent = decode(whole(3, lists.recent_bytes, lists.recent_digest), manifest.rows,
                    base_epoch, manifest.epoch, False)
    base = decode(whole(1, lists.base_bytes, lists.base_digest), lists.base_rows, 0,
                  base_epoch, True)
    block = decode(previous, lists.base_rows, max(0, base_epoch - 8), base_epoch, False)
    require(all(new == old if new else old[0] <= max(0, base_epoch - 8)
                for new, old in zip(block, base)), "lists that contradict each other")
    now = [recent[row] or base[row] for row in range(min(len(recent), len(base)))]
    now += recent[len(now):]
    require(None not in now, "a row without an epoch")
    require(all(manifest.epoch - epoch < 4096 and (epoch < manifest.epoch or
                digest == manifest.rows_digest) for epoch, digest in set(now)), "a bad epoch of a row")
    return now
