#!/usr/bin/env python3
"""Asks keys once, in a round with a term, and prints them again at every new epoch of the table.

Written from docs/protocol.md, "Refreshes", on top of client.py. It keeps the term in memory alone, and
ends after so many refreshes as --refreshes says.
"""
import argparse, pathlib, time

import client
import row_versions
from client import chacha20, require, transcript
from google.protobuf import text_format

def places(m):
    """What must not change within a term."""
    return (m.table_id, m.rows, m.row_bytes, m.hashed.hash_seed, m.hashed.buckets, m.hashed.placement_digest)

def refresh_fields(h):
    return h.round_id, h.number, h.epoch, h.manifest_digest

def fetch_refresh(frontend, pins, term, last):
    """The next refresh's number and the wanted rows' bytes; nothing if there is no news."""
    response = frontend.call(25, "GetRefresh", round_id=term["round_id"])
    header, round_header = response.refresh.header, term["header"]
    if not response.HasField("refresh") or header.number <= last:
        return None
    deployment = frontend.call(16, "GetDeployment")
    roster, manifest, aggregate = client.verify_deployment(deployment, pins, frontend.certificate)
    if header.manifest_digest != client.manifest_digest(manifest):
        return None  # the next epoch is served, and not refreshed yet
    client.verify("refresh", aggregate, transcript("shoal refresh v1", *refresh_fields(header)),
                  response.refresh.signature)
    require(header.round_id == term["round_id"] and header.number <= round_header.max_refreshes,
            "a refresh of another term")
    require(header.epoch == manifest.epoch > term["manifest"].epoch, "a refresh of an old table")
    require(places(manifest) == places(term["manifest"]), "the rows have moved")
    parties = len(round_header.onion_keys)
    require(len(response.tags) == 32 * parties, "not a tag of every party")
    tags = [response.tags[32 * j:32 * j + 32] for j in range(parties)]
    masks = [transcript("shoal refresh masks v1", *refresh_fields(header), tag) for tag in tags]
    versions = row_versions.fetch(frontend, manifest, client.manifest_digest(manifest), transcript)
    seeds = [[transcript("shoal term seed v1", term["round_id"], key=seed) for seed in of_slot]
             for of_slot in term["seeds"]]
    tokens = b"".join(chacha20(s[0], masks[0], 0, bytes(16)) for s in seeds)
    answers = frontend.call(26, "FetchRefresh", round_id=term["round_id"], number=header.number,
                            slots=term["slots"], tokens=tokens).answers
    size = round_header.answer_bytes + client.ANSWER_TAG
    require(len(answers) == size * len(seeds), "another number of answers")
    plain = [client.unmask(answers[i * size:(i + 1) * size], of_slot, masks)
             for i, of_slot in enumerate(seeds)]
    rows = client.verify_rows(manifest, aggregate, versions, term["rows"], plain, term["wanted"])
    return header.number, manifest, rows

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pinned", required=True, help="text-format shoal.wire.PinnedParties")
    parser.add_argument("--pad", type=int, default=16, help="queries come in multiples of this")
    parser.add_argument("--refreshes", type=int, default=1, help="ends after so many")
    parser.add_argument("frontend", help="host:port")
    parser.add_argument("key", nargs="+")
    arguments = parser.parse_args()
    client_pb2, roster_pb2 = client.load_messages()
    pins = text_format.Parse(pathlib.Path(arguments.pinned).read_text(), roster_pb2.PinnedParties())
    keys = [key.encode() for key in arguments.key]
    frontend = client.Frontend(arguments.frontend, client_pb2)
    term = {}
    values = client.look_up(frontend, pins, keys, arguments.pad, term)
    client.show(keys, values)
    placement = client.fetch_placement(frontend, term["manifest"])
    last = 0
    for _ in range(arguments.refreshes):
        while (news := fetch_refresh(frontend, pins, term, last)) is None:
            time.sleep(1)
        last, manifest, rows = news
        before, values = values, [
            client.find(manifest, rows[client.row_of(manifest, placement, key)], key) for key in keys]
        changed = [i for i in range(len(keys)) if values[i] != before[i]]
        client.show([keys[i] for i in changed], [values[i] for i in changed])

if __name__ == "__main__":
    main()
