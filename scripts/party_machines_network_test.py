"""A party's machines as real processes, each in a network namespace of its own behind a router, while something fails.

Asked of each failure: within 45 seconds no process of the job is left on any machine, and the launcher has ended with 1 if
it was not what was killed. Where other work takes the processors, a second counts only as far as a process that wants some
of one gets it, and two minutes are the most. Then the job runs again, from the same ports. Also asked: what passes between the machines holds no seed and no inner onion. Prints how long each failure
took to be noticed.

  party_machines_network_test.py [FAILURE]...      all of them without arguments
"""

import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import left_out

LAUNCHER = os.path.abspath("scripts/party-machines")
PROGRAM = os.path.abspath("src/server/testing/offline_over_mpi")
ONIONS = 500
# What is promised, in seconds in which there is processor time, and what is asked whatever else runs.
LIMIT_S, BUSY_LIMIT_S = 45, 120
# A job's start promises nothing in time: it may take this long, and is tried so often. Less than Bazel gives this test.
START_S, STARTS = 240, 3
PORTS, DATA_PORTS = "7400-7419", "7410-7419"


class Failed(Exception):
    pass


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Probe:
    """Seconds in which there was processor time: a process that wants 20 ms of it every 0.4 s tells how much of
    each second it got. What it wants is little, and the jobs of this test rest most of the time, so that their own load
    gives no relief."""

    def __init__(self):
        self.seconds = 0.0
        self.process = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), "--probe"],
                                        stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.add, daemon=True).start()

    def add(self):
        for line in self.process.stdout:
            self.seconds += float(line)

    @staticmethod
    def measure():
        while True:
            begun = time.monotonic()
            time.sleep(0.4)
            wanted, cpu_begun = time.monotonic(), time.thread_time()
            while time.thread_time() - cpu_begun < 0.02:
                pass
            ended = time.monotonic()
            print((ended - begun) * min(1, 0.02 / (ended - wanted)), flush=True)


class Party:
    """Machines 0, 1, .. of a party, and a router between them."""

    def __init__(self, name, machines):
        self.name, self.machines = name, machines
        self.directory = tempfile.mkdtemp(prefix=f"{name}-")
        with open(os.path.join(self.directory, "secret"), "wb") as file:
            file.write(os.urandom(32))
        self.log = open(os.path.join(self.directory, "log"), "wb")
        self.router = name + "r"
        run("ip", "netns", "add", self.router)
        run("nsenter", f"--net=/run/netns/{self.router}", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for machine in range(machines):
            inside, subnet = self.namespace(machine), f"10.79.{machine + 1}"
            run("ip", "netns", "add", inside)
            run("ip", "link", "add", f"r{machine}", "netns", self.router, "type", "veth", "peer", "name", "eth0",
                "netns", inside)
            run("ip", "-n", self.router, "addr", "add", f"{subnet}.1/24", "dev", f"r{machine}")
            run("ip", "-n", self.router, "link", "set", f"r{machine}", "up")
            run("ip", "-n", inside, "addr", "add", f"{subnet}.2/24", "dev", "eth0")
            run("ip", "-n", inside, "link", "set", "lo", "up")
            run("ip", "-n", inside, "link", "set", "eth0", "up")
            run("ip", "-n", inside, "route", "add", "default", "via", f"{subnet}.1")
        # What ssh would be: `agent 10.79.2.2 orted ...` runs a command on machine 1.
        self.agent = os.path.join(self.directory, "agent")
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nhost=${1#10.79.}; shift\n"
                       f'exec nsenter --net=/run/netns/{name}m$((${{host%%.*}} - 1)) /bin/sh -c "$*"\n')
        os.chmod(self.agent, 0o700)

    def namespace(self, machine):
        return f"{self.name}m{machine}"

    def start(self, how, at=0):
        """The job, with its launcher at machine `at`."""
        command = ["nsenter", f"--net=/run/netns/{self.namespace(at)}", LAUNCHER, "--agent", self.agent, "--network",
                   "10.79.0.0/16", "--ports", PORTS, "--log", os.path.join(self.directory, "machines.log")]
        for machine in range(self.machines):
            command += ["--host", f"10.79.{machine + 1}.2"]
        return subprocess.Popen(command + ["--", PROGRAM, self.directory, str(ONIONS), how], stdin=subprocess.DEVNULL,
                                stdout=self.log, stderr=self.log)

    def processes(self, program="", machine=None):
        """Who runs on one machine, or on all."""
        machines = range(self.machines) if machine is None else [machine]
        spaces = {os.stat(f"/run/netns/{self.namespace(m)}").st_ino for m in machines}
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
            if program in words[0] or program in words[1:2]:
                found.append((int(os.path.basename(path)), " ".join(words)))
        return found

    def kill(self, program, machine):
        found = self.processes(program, machine)
        if len(found) != 1:
            raise Failed(f"{self.name}: {len(found)} processes of {program}")
        os.kill(found[0][0], signal.SIGKILL)

    def check_ranks(self):
        """Machine i is on host i, wherever the launcher is."""
        for machine in range(self.machines):
            for process, _ in self.processes("offline_over_mpi", machine):
                with open(f"/proc/{process}/environ", "rb") as file:
                    if f"OMPI_COMM_WORLD_RANK={machine}".encode() not in file.read().split(b"\0"):
                        raise Failed(f"the process on host {machine} is not machine {machine}")

    def lists(self):
        def joined(what):
            return b"".join(open(f"{self.directory}/{what}-{m}", "rb").read() for m in range(self.machines))
        return joined("list"), joined("seeds")

    def words(self):
        found = ""
        for path in glob.glob(f"{self.directory}/*log"):
            with open(path, encoding="utf-8", errors="replace") as file:
                found += file.read()
        return found


def drop_data_ports(party, change):
    for ends in ("dport", "sport"):
        run("ip", "-n", party.router, "rule", change, "ipproto", "tcp", ends, DATA_PORTS, "blackhole")


def link(party, machine, state):
    run("ip", "-n", party.router, "link", "set", f"r{machine}", state)


# Where the launcher runs, what happens, and how it is mended.
FAILURES = {
    "machine-killed": (0, lambda party: party.kill("offline_over_mpi", 1), None),
    "head-killed": (1, lambda party: party.kill("offline_over_mpi", 0), None),
    "launcher-killed": (0, lambda party: party.kill(LAUNCHER, 0), None),
    "mpirun-killed": (1, lambda party: party.kill("mpirun", 1), None),
    "link-down": (0, lambda party: link(party, 1, "down"), lambda party: link(party, 1, "up")),
    "link-of-launcher-down": (1, lambda party: link(party, 1, "down"), lambda party: link(party, 1, "up")),
    "data-ports-dropped": (0, lambda party: drop_data_ports(party, "add"), lambda party: drop_data_ports(party, "del")),
}


def begin(party, at):
    """A job that goes on, once both of its machines are at work."""
    for attempt in range(1, STARTS + 1):
        launcher = party.start("on", at)
        until = time.monotonic() + START_S
        while launcher.poll() is None and time.monotonic() < until:
            if len(glob.glob(f"{party.directory}/began-*")) == party.machines:
                return launcher
            time.sleep(0.1)
        print(f"{party.name}: attempt {attempt} to begin failed: {launcher.poll()}", flush=True)
        launcher.kill()
        time.sleep(5)
    raise Failed(f"the job has not begun: {party.words()}")


def run_again(party, at):
    """As a service manager does: a job that cannot begin, as its network is not back yet, ends by its own limits."""
    for attempt in range(1, STARTS + 1):
        launcher = party.start("once", at)
        try:
            code = launcher.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            code = f"no end after {START_S} s"
            launcher.kill()
        if code == 0:
            return
        print(f"{party.name}: attempt {attempt} to run again failed: {code}", flush=True)
        time.sleep(5)
    raise Failed(f"the job does not run again: {party.words()}")


def fail(name, number, probe):
    at, happen, mend = FAILURES[name]
    party = Party(f"pm{number}", 2)
    try:
        launcher = begin(party, at)
        party.check_ranks()
        happen(party)
        begun, probe_begun = time.monotonic(), probe.seconds
        while True:
            took_s, had_s = time.monotonic() - begun, probe.seconds - probe_begun
            if not party.processes():
                break
            if had_s > LIMIT_S or took_s > BUSY_LIMIT_S:
                raise Failed(f"left after {took_s:.1f} s, {had_s:.1f} with processor time: {party.processes()}: "
                             f"{party.words()}")
            launcher.poll()
            time.sleep(0.2)
        print(f"{name}: everything had ended after {took_s:.1f} s, {had_s:.1f} with processor time", flush=True)
        code = launcher.wait()
        if code != (-signal.SIGKILL if name == "launcher-killed" else 1):
            raise Failed(f"the launcher's exit code is {code}: {party.words()}")
        if mend is not None:
            mend(party)
        run_again(party, at)
    except Exception as exception:
        raise Failed(f"{name}: {exception}") from exception


class Capture:
    """All that passes a party's router."""

    def __init__(self, party):
        self.path = os.path.join(party.directory, "capture")
        self.process = subprocess.Popen(["nsenter", f"--net=/run/netns/{party.router}", sys.executable, "-B",
                                         os.path.abspath(__file__), "--capture", self.path], stdout=subprocess.PIPE)
        self.process.stdout.readline()  # it has begun

    def end(self):
        self.process.terminate()
        self.process.wait()
        with open(self.path, "rb") as file:
            return file.read()


def capture(path):
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    packets.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)  # SO_RCVBUFFORCE
    with open(path, "wb", buffering=0) as file:
        print("begun", flush=True)
        while True:
            file.write(packets.recv(1 << 17))


def check_contents():
    """Three machines, the launcher on the last of them: the list of one machine, and a capture that says nothing."""
    alone, party = Party("pmone", 1), Party("pmthree", 3)
    one = alone.start("once")
    watch = Capture(party)
    several = party.start("once", at=2)
    for launcher, where in ((one, alone), (several, party)):
        if launcher.wait(timeout=START_S) != 0:
            raise Failed(f"the job failed: {where.words()}")
    passed = watch.end()
    if alone.lists() != party.lists():
        raise Failed("three machines have not the list of one")
    inner, seeds = party.lists()
    print(f"{len(passed)} bytes passed; the list has {len(inner)}, the seeds {len(seeds)}", flush=True)
    # Two thirds of it go to another machine.
    if len(passed) < len(inner) // 2:
        raise Failed("the capture is too short")
    for what, secret in (("an inner onion", inner), ("a seed", seeds)):
        for at in range(0, len(secret) - 16, 32):
            part = secret[at:at + 16]
            if part != bytes(16) and part in passed:
                raise Failed(f"{what} passed in the clear")


def inside(names):
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    wrong = []

    def tell(check, *arguments):
        try:
            check(*arguments)
        except Exception as exception:  # pylint: disable=broad-except
            wrong.append(str(exception))
            print(f"WRONG: {exception}", flush=True)

    probe = Probe()
    threads = [threading.Thread(target=tell, args=(fail, name, number, probe)) for number, name in enumerate(FAILURES)
               if not names or name in names]
    if not names or "contents" in names:
        threads.append(threading.Thread(target=tell, args=(check_contents,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if wrong else 0


def permitted():
    """Why this machine cannot do it; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("unshare", "setpriv", "nsenter", "ip", "mpirun"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    probe = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec",
         "mount -t tmpfs tmpfs /run; ip netns add probe; ip link add va type veth peer name vb netns probe; "
         "ip rule add ipproto tcp dport 7410-7419 blackhole"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return f"network namespaces are not permitted: {probe.stderr.strip()}" if probe.returncode != 0 else ""


def main(arguments):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if arguments[:1] == ["--capture"]:
        capture(arguments[1])
    if arguments[:1] == ["--probe"]:
        Probe.measure()
    if arguments[:1] == ["--inside"]:
        return inside(arguments[1:])
    why_not = permitted()
    if why_not:
        left_out.leave_out("party_machines_network_test", "machines of a party in network namespaces", why_not)
        return 0
    return subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
         "--mount-proc", sys.executable, "-B", os.path.abspath(__file__), "--inside"] + arguments, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
