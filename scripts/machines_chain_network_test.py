"""Chains whose parties have several machines, each machine in a network namespace of its own behind a router, while
something fails in one party. Takes some minutes for each chain.

Asked of each failure: within 45 seconds no process of the party is left on any of its machines, counted as
party_machines_network_test.py does; once it is mended the party, which is started again as by a service manager, serves: a client
that was on its way gets its answers, and so does a new one. Every answer is compared with the table.

  machines_chain_network_test.py [--chain "2 4"]... [FAILURE]...    chains 2 4 and 4 3, and all failures, by default

Failures: machine-killed, launcher-killed, link-down, ports-dropped; each in the last party and then in the first. A chain
"2 1:" has no failures, "2 2:last" those of its last party alone. At the end all machines end in good order.
"""

import argparse
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import left_out
import party_machines_network_test as network

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.abspath(os.environ.get("SHOAL_BIN", "src"))
PORT = 7300
KEYS = 40
START_S, CLIENT_S = 120, 240
# A machine's configuration by its rank, as all of them have one file system here.
OWN = ('if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then own=; else own=.machine-$OMPI_COMM_WORLD_RANK; fi\n'
       'exec "$1" --config "$2$own.textproto"')


class Failed(Exception):
    pass


def await_that(what, condition, limit_s):
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            raise Failed(f"waited in vain: {what}")
        time.sleep(0.2)


class Party:
    """A party's machines, and what a service manager does: it starts the party again two seconds after it ended with 1."""

    def __init__(self, chain, number, subnets):
        self.chain, self.number, self.subnets = chain, number, subnets
        self.stopping = False
        self.may_start = threading.Event()
        self.may_start.set()
        self.launcher = None
        self.codes = []
        self.log = os.path.join(chain.directory, f"party-{number}.log")
        self.thread = threading.Thread(target=self.keep, daemon=True)

    def hosts(self):
        return [f"10.79.{subnet}.2" for subnet in self.subnets]

    def command(self):
        base = os.path.join(self.chain.directory, f"party-{self.number}")
        enter = ["nsenter", f"--net=/run/netns/m{self.subnets[0]}"]
        if len(self.subnets) == 1:
            return enter + [f"{BIN}/shoald/shoald", "--config", base + ".textproto"]
        words = [f"{HERE}/party-machines", "--agent", self.chain.agent, "--network", "10.79.0.0/16", "--ports", network.PORTS,
                 "--log", base + ".log"]
        for host in self.hosts():
            words += ["--host", host]
        return enter + words + ["--", "/bin/sh", "-c", OWN, "sh", f"{BIN}/shoald/machines/shoald-machines", base]

    def keep(self):
        while not self.stopping:
            self.may_start.wait()
            with open(self.log, "ab") as log:
                self.launcher = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.codes.append(self.launcher.wait())
            time.sleep(0 if self.stopping else 2)

    def said(self, words):
        """How often, in the log of all machines."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read().count(words)
        except FileNotFoundError:
            return 0

    def listening(self):
        return self.said("listens on")

    def start(self):
        self.thread.start()
        await_that(f"party {self.number} does not listen", lambda: self.listening() >= len(self.subnets), START_S)

    def stop(self):
        # Machines whose launcher was killed may have said so, too.
        before = self.said("all machines end in good order")
        self.stopping = True
        self.launcher.terminate()
        self.thread.join()
        if self.codes[-1] != 0:
            raise Failed(f"party {self.number} ended with {self.codes[-1]}")
        if len(self.subnets) > 1 and self.said("all machines end in good order") - before != len(self.subnets):
            raise Failed(f"party {self.number}: not all machines ended in good order")

    def processes(self, machine=None):
        """Of the party's programs, not of Open MPI's or the launcher; on one machine or on all."""
        subnets = self.subnets if machine is None else [self.subnets[machine]]
        spaces = {os.stat(f"/run/netns/m{subnet}").st_ino for subnet in subnets}
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                if os.stat(f"{path}/ns/net").st_ino not in spaces:
                    continue
                with open(f"{path}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                with open(f"{path}/stat", encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        continue
            except OSError:
                continue
            found.append((int(os.path.basename(path)), words))
        return found

    def kill(self, program, machine):
        found = [process for process, words in self.processes(machine) if any(program in word for word in words[:2])]
        if len(found) != 1:
            raise Failed(f"party {self.number}: {len(found)} processes of {program} at machine {machine}")
        os.kill(found[0], signal.SIGKILL)


class Chain:
    def __init__(self, machines):
        self.directory = tempfile.mkdtemp(prefix="chain-")
        network.run("ip", "netns", "add", "router")
        network.run("nsenter", "--net=/run/netns/router", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        self.agent = os.path.join(self.directory, "agent")
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nhost=${1#10.79.}; shift\n"
                       'exec nsenter --net=/run/netns/m${host%%.*} /bin/sh -c "$*"\n')
        os.chmod(self.agent, 0o700)
        self.parties, subnet = [], 1
        for number, count in enumerate(machines, 1):
            self.parties.append(Party(self, number, list(range(subnet, subnet + count))))
            subnet += count
        self.clients = subnet  # in a namespace of their own
        for each in range(1, subnet + 1):
            self.join(each)
        self.clients_asked = 0
        self.create(machines)

    def join(self, subnet):
        inside = f"m{subnet}"
        network.run("ip", "netns", "add", inside)
        network.run("ip", "link", "add", f"r{subnet}", "netns", "router", "type", "veth", "peer", "name", "eth0", "netns",
                    inside)
        network.run("ip", "-n", "router", "addr", "add", f"10.79.{subnet}.1/24", "dev", f"r{subnet}")
        network.run("ip", "-n", "router", "link", "set", f"r{subnet}", "up")
        network.run("ip", "-n", inside, "addr", "add", f"10.79.{subnet}.2/24", "dev", "eth0")
        network.run("ip", "-n", inside, "link", "set", "lo", "up")
        network.run("ip", "-n", inside, "link", "set", "eth0", "up")
        network.run("ip", "-n", inside, "route", "add", "default", "via", f"10.79.{subnet}.1")

    def create(self, machines):
        records = os.path.join(self.directory, "records.tsv")
        with open(records, "w", encoding="utf-8") as file:
            file.writelines(f"key-{i}\tvalue {i * i}\n" for i in range(1, KEYS + 1))
        made = os.path.join(self.directory, "chain")
        network.run(f"{HERE}/local-chain", "create", made, "--parties", str(len(machines)), "--port", str(PORT),
                    "--machines", " ".join(map(str, machines)),
                    "--hosts", " ".join(",".join(party.hosts()) for party in self.parties), "--protect", "lookup", "--pad",
                    "4", "--rounds", "open_ahead: 1 onions_window_s: 5 queries_window_s: 10 answers_window_s: 30", "--",
                    "--tsv", records, "--name", "squares", "--row-bytes", "128")
        for party in self.parties:
            party.log = os.path.join(made, f"party-{party.number}.log")
        self.directory = made

    def start(self):
        for party in reversed(self.parties):
            party.start()

    def ask(self, count=1):
        """Clients with a state of their own each, which begin to ask."""
        return [Client(self) for _ in range(count)]

    def words(self):
        found = ""
        for party in self.parties:
            with open(party.log, encoding="utf-8", errors="replace") as file:
                found += "".join(file.readlines()[-25:])
        return found


class Client:
    def __init__(self, chain):
        chain.clients_asked += 1
        first = chain.clients_asked * 3 % (KEYS - 3)
        self.keys = [first + i for i in range(1, 4)]
        self.base = os.path.join(chain.directory, f"client-{chain.clients_asked}")
        with open(os.path.join(chain.directory, "client.textproto"), encoding="utf-8") as file:
            text = file.read().replace("client.state", os.path.basename(self.base) + ".state")
        with open(self.base + ".textproto", "w", encoding="utf-8") as file:
            file.write(f"{text}timeout_s: {CLIENT_S}\n")
        with open(self.base + ".out", "wb") as out, open(self.base + ".err", "wb") as err:
            self.process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/m{chain.clients}", f"{BIN}/shoal/shoal", "query", "--config",
                 self.base + ".textproto", *(f"key-{i}" for i in self.keys)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=err)

    def said(self):
        with open(self.base + ".err", encoding="utf-8", errors="replace") as file:
            return file.read()

    def has_slots(self):
        if self.process.poll() is not None:
            raise Failed(f"a client has ended: {self.said()}")
        return "waiting for round" in self.said()

    def expect(self):
        code = self.process.wait(timeout=2 * CLIENT_S)
        with open(self.base + ".out", encoding="utf-8") as file:
            answers = file.read().splitlines()
        wanted = [f"key-{i}\tfound\tvalue {i * i}\tyes" for i in self.keys]
        if code != 0 or any(line not in answers for line in wanted):
            raise Failed(f"a client ended with {code}: {answers}: {self.said()}")


def link(party, state):
    network.run("ip", "-n", "router", "link", "set", f"r{party.subnets[-1]}", state)


def drop_ports(party, change):
    """Open MPI's data ports between the party's machines: its daemons still hear each other."""
    for subnet in party.subnets:
        for ends in ("dport", "sport"):
            network.run("ip", "-n", "router", "rule", change, "from", f"10.79.{subnet}.0/24", "ipproto", "tcp", ends,
                        network.DATA_PORTS, "blackhole")


FAILURES = {
    "machine-killed": (lambda party: party.kill("shoald-machines", len(party.subnets) - 1), None),
    "launcher-killed": (lambda party: party.kill("party-machines", 0), None),
    "link-down": (lambda party: link(party, "down"), lambda party: link(party, "up")),
    "ports-dropped": (lambda party: drop_ports(party, "add"), lambda party: drop_ports(party, "del")),
}


def fail(chain, party, name, probe):
    happen, mend = FAILURES[name]
    [client] = chain.ask()
    await_that("a client has no slots", client.has_slots, CLIENT_S)
    party.may_start.clear()
    listened = party.listening()
    happen(party)
    begun, probe_begun = time.monotonic(), probe.seconds
    while True:
        took_s, had_s = time.monotonic() - begun, probe.seconds - probe_begun
        left = party.processes()
        if not left:
            break
        if had_s > network.LIMIT_S or took_s > network.BUSY_LIMIT_S:
            raise Failed(f"left after {took_s:.1f} s, {had_s:.1f} with processor time: {left}")
        time.sleep(0.2)
    print(f"party {party.number} of {len(party.subnets)} machines, {name}: all had ended after {took_s:.1f} s, {had_s:.1f} with "
          "processor time", flush=True)
    if mend is not None:
        mend(party)
    party.may_start.set()
    await_that("the party does not listen again", lambda: party.listening() >= listened + len(party.subnets), START_S)
    client.expect()
    for new in chain.ask(2):
        new.expect()
    print(f"  a client on its way and two new ones had their answers after {time.monotonic() - begun:.1f} s", flush=True)


def check(description, failures, probe):
    counts, colon, where = description.partition(":")
    machines = [int(count) for count in counts.split()]
    chain = Chain(machines)
    try:
        chain.start()
        for client in chain.ask(8):
            client.expect()
        print(f"{machines}: eight clients had their answers", flush=True)
        for party in {"": [], "last": chain.parties[-1:]}[where] if colon else (chain.parties[-1], chain.parties[0]):
            if len(party.subnets) > 1:
                for name in failures:
                    fail(chain, party, name, probe)
        for party in chain.parties:
            party.stop()
    except Exception as exception:
        raise Failed(f"{machines}: {exception}\n{chain.words()}") from exception


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--chain", action="append")
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("failures", nargs="*", choices=[*FAILURES, []])
    return parser.parse_args(arguments)


def main(arguments):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    os.environ["SHOAL_BIN"] = BIN  # for local-chain
    options = parse(arguments)
    chains = options.chain or ["2 4", "4 3"]
    if options.inside:
        network.run("mount", "-t", "tmpfs", "tmpfs", "/run")
        check(chains[0], options.failures or list(FAILURES), network.Probe())
        return 0
    why_not = network.permitted()
    if why_not:
        left_out.leave_out("machines_chain_network_test", "chains of parties of several machines in network namespaces", why_not)
        return 0
    code = 0
    for chain in chains:
        code |= subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
             sys.executable, "-B", os.path.abspath(__file__), "--inside", "--chain", chain, *options.failures],
            check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
