"""Who may include whom among the folders of src, from the bottom to the top.

A folder without a row (`testing`) is a part of the folder that it lies in. A folder may include itself and the folders that its
row names. These must have their own rows further up in this table, so that no arrow points up and no folder is in a
circle. A folder's tests, benchmarks and `testing` folder may include every folder above the row,
with its `testing` folder, but not the folders that are to be kept apart (APART). //scripts/checks:layers_test compares
this table with what Bazel says about every target, and with the table of folders in docs/architecture.md.
"""

LAYERS = {
    # Basic values, storage of large data, and parallel work.
    "base": [],
    "parallel": ["base"],
    "storage": ["base", "parallel"],
    # The machines of one party.
    "machines": ["base", "parallel"],
    "machines/mpi": ["base", "machines", "parallel"],
    # Encodings.
    "wire": ["base", "storage"],
    # The five primitives of the chain.
    "noise": ["base"],
    "onion": ["base"],
    "sharing": ["base"],
    "shuffle": ["base", "parallel", "storage"],
    "signature": ["base", "parallel"],
    # The scan that servers of two-server PIR share.
    "select": ["base", "parallel"],
    # Signed things.
    "roster": ["base", "noise", "signature", "storage", "wire"],
    "round": ["base", "onion", "roster", "sharing", "signature", "wire"],
    "table": ["base", "parallel", "roster", "storage", "wire"],
    # Advisories about packages, and what is installed.
    "audit": ["base", "storage", "table"],
    # Sockets.
    "net": ["base", "parallel", "storage", "wire"],
    # The engines, the two sides of the chain, and the folders built on them.
    "pir": ["base", "parallel", "storage", "wire"],
    "pir/aes": ["base"],
    "pir/kit": ["base", "parallel", "pir", "storage", "wire"],
    "pir/lwe": ["base", "noise", "parallel", "pir", "pir/aes", "pir/kit", "storage", "wire"],
    "pir/rlwe": ["base", "parallel", "pir", "pir/kit", "pir/lwe", "storage", "wire"],
    "pir/sets": ["base", "parallel", "pir", "pir/aes", "pir/kit", "pir/rlwe", "storage", "wire"],
    "pir/pair": ["base", "parallel", "pir", "pir/aes", "pir/kit", "select", "storage", "wire"],
    "pir/registry": ["pir", "pir/lwe", "pir/pair", "pir/rlwe", "pir/sets"],
    "pir/setup": ["base", "pir", "roster", "storage", "table", "wire"],
    "server": ["base", "machines", "noise", "onion", "parallel", "roster", "round", "select", "sharing", "shuffle", "signature", "storage", "wire"],
    "client": ["base", "net", "noise", "onion", "parallel", "pir", "pir/registry", "pir/setup", "roster", "round", "sharing", "storage", "table", "wire"],
    "load": ["base", "client", "onion", "parallel", "pir", "roster", "round", "storage", "table", "wire"],
    "plan": ["base", "machines", "noise", "onion", "parallel", "pir", "pir/registry", "roster", "round", "server", "sharing", "shuffle", "signature", "storage", "table", "wire"],
    # Programs: they parse flags, print and initialise the process, and so lie above every library.
    "cli": ["base", "parallel"],
    "shoal": ["audit", "base", "cli", "client", "load", "noise", "parallel", "pir", "pir/registry", "pir/setup", "plan", "roster", "storage", "table", "wire"],
    "shoald": ["base", "cli", "machines", "net", "parallel", "pir", "pir/registry", "pir/setup", "roster", "round", "server", "sharing", "storage", "table", "wire"],
    "shoald/machines": ["base", "cli", "machines", "machines/mpi", "shoald", "storage"],
    "door": ["base", "cli", "net", "parallel", "roster", "shoald", "storage", "wire"],
    # A library again, for other programs. It stands above ours because its tests run them.
    "libshoal": ["base", "client", "parallel", "pir", "pir/registry"],
    # Tests and benchmarks over several folders.
    "bench": ["base", "machines", "net", "noise", "onion", "parallel", "plan", "roster", "round", "server", "sharing", "shoald", "shuffle", "signature", "storage", "wire"],
    "fuzz": ["audit", "base", "client", "door", "net", "onion", "parallel", "pir", "pir/lwe", "pir/pair", "pir/rlwe", "pir/sets", "pir/setup", "roster", "round", "server", "shoal", "shoald", "signature", "storage", "table", "wire"],
    "sim": ["base", "client", "door", "load", "machines", "net", "onion", "parallel", "pir/lwe", "pir/pair", "pir/rlwe", "pir/sets", "pir/setup", "roster", "round", "server", "sharing", "shoal", "shoald", "signature", "storage", "table", "wire"],
}

# No folder of such a group includes another one of the same group, not even in tests.
APART = [
    ["client", "server"],
    ["noise", "onion", "sharing", "shuffle", "signature"],
]

# Folders of programs, which may print, parse flags and initialise the process.
PROGRAMS = ["cli", "door", "shoal", "shoald", "shoald/machines"]

# Folders that hold nothing but tests and benchmarks.
TESTS = ["bench", "fuzz", "sim"]

# Every package of src, for //scripts/checks:layers_test.
PACKAGES = list(LAYERS) + [
    "base/testing",
    "client/testing",
    "machines/testing",
    "net/testing",
    "onion/testing",
    "pir/kit/testing",
    "pir/testing",
    "roster/testing",
    "round/testing",
    "server/testing",
    "table/testing",
]

def folders_above(folder):
    """The folders that may include this one, and those whose tests may: for visibility."""
    order = LAYERS.keys()
    above = order[order.index(folder) + 1:]
    apart = [other for group in APART if folder in group for other in group]
    return [other for other in above if other not in apart]
