"""The pods of configs/kubernetes/machines.yaml, in network namespaces: a party of three machines between two others.

Commands, configuration, Secrets, users and read-only file systems are those of the file, as far as a chroot can have them;
the image's script (machine.sh), sshd, ssh, Open MPI and all programs are real. Packets pass by the file's NetworkPolicy
(routing_rules.py). No cluster is reached: names come from files of hosts, and the parties before and after call the pods
themselves, without a load balancer.

Asked: every answer is right; a machine that is killed ends the head's container with 1 within 45 seconds, and once
Kubernetes would have started it again the party serves; all machines end in good order.

Needs root, and sshd (scripts/setup --test). SHOAL_BIN has the programs, as bazel-bin/src.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import yaml

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

import left_out  # noqa: E402
from cloud import routing_rules  # noqa: E402

BIN = os.path.abspath(os.environ.get("SHOAL_BIN", os.path.join(ROOT, "bazel-bin/src")))
SSHD = os.path.join(ROOT, ".deps", "sshd")
BEFORE, AFTER = "192.0.2.10", "203.0.113.20"  # as the file has them
START_S, END_S = 180, 45
KEYS = 20

# A pod: $1 has its volumes, $2 what the image has in /usr/local/bin, $3 sshd. The rest is the container's command. What runs
# here is process 1, as in a container.
POD = r"""
set -euo pipefail
volumes=$1 bin=$2 sshd=$3
shift 3
root=/mnt/root
mount -t tmpfs none /mnt
mkdir $root
mount -t tmpfs -o size=8m none $root
for folder in usr etc dev sys proc keys secret config public table state tmp run; do mkdir $root/$folder; done
for link in bin lib lib64 sbin; do ln -s usr/$link $root/$link; done
mount --rbind /usr $root/usr
mount --rbind /etc $root/etc
mount --rbind /dev $root/dev
mount --rbind /sys $root/sys
mount -t proc none $root/proc
mount -t tmpfs none $root/dev/shm
mount --bind "$bin" $root/usr/local/bin
mount -t tmpfs none $root/usr/sbin
install "$sshd/usr/sbin/sshd" $root/usr/sbin/sshd
cp "$sshd"/usr/lib/x86_64-linux-gnu/libwrap.so.0 $root/run/
for file in passwd group hosts; do mount --bind "$volumes/$file" $root/etc/$file; done
for volume in secret config public table state tmp keys; do mount --bind "$volumes/$volume" $root/$volume; done
for folder in usr etc secret config public table; do mount -o remount,bind,ro $root/$folder; done
mount -o remount,ro $root
as_user=(env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/ LD_LIBRARY_PATH=/run setpriv --reuid 10001 --regid 10001
  --groups 10001 --no-new-privs --bounding-set -all --inh-caps -all)
chroot $root "${as_user[@]}" /usr/local/bin/machine keys
mount -o remount,bind,ro $root/keys
exec chroot $root "${as_user[@]}" "$@"
"""


class Failed(Exception):
    pass


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)
    if done.returncode != 0:
        refused = "Operation not permitted" in done.stdout or "Permission denied" in done.stdout
        raise (PermissionError if refused else Failed)(f"{' '.join(command)}: {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def await_that(what, condition, limit_s):
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            raise Failed(f"waited in vain: {what}")
        time.sleep(0.2)


class Hosts:
    """Namespaces on one switch, each with one address."""

    def __init__(self):
        self._prefix = f"shk8s{os.getpid()}"
        self.names = {}
        run("ip", "netns", "add", self._prefix)
        run("ip", "-n", self._prefix, "link", "add", "switch", "type", "bridge")
        run("ip", "-n", self._prefix, "link", "set", "switch", "up")

    def add(self, host, address):
        name = self.names[host] = f"{self._prefix}-{len(self.names)}"
        run("ip", "netns", "add", name)
        port = f"port{len(self.names)}"
        run("ip", "-n", self._prefix, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", self._prefix, "link", "set", port, "master", "switch", "up")
        run("ip", "-n", name, "address", "add", address + "/32", "dev", "eth0")
        for card in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", card, "up")
        run("ip", "-n", name, "route", "add", "default", "dev", "eth0")

    def inside(self, host):
        return ["nsenter", f"--net=/run/netns/{self.names[host]}"]

    def close(self):
        for name in [*self.names.values(), self._prefix]:
            pids = subprocess.run(["ip", "netns", "pids", name], stdout=subprocess.PIPE, text=True, check=False).stdout
            for pid in pids.split():
                subprocess.run(["kill", "-9", pid], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


class Pod:
    def __init__(self, party, name, container, secrets):
        self.party, self.name, self.command = party, name, container["command"]
        self.folder = os.path.join(party.folder, name)
        self.log = os.path.join(party.folder, name + ".log")
        for volume in ("secret/party", "secret/ssh", "config", "public", "table", "state", "tmp", "keys"):
            os.makedirs(os.path.join(self.folder, volume))
        for what, source in secrets.items():
            # A Secret is mounted as links into a folder that its group may read.
            data = os.path.join(self.folder, "secret", what, "..data")
            os.makedirs(data)
            for file in os.listdir(source):
                if os.path.isfile(os.path.join(source, file)):
                    shutil.copy(os.path.join(source, file), data)
                    os.chmod(os.path.join(data, file), 0o440)
                    os.chown(os.path.join(data, file), 0, 10001)
                    os.symlink(os.path.join("..data", file), os.path.join(self.folder, "secret", what, file))
        with open(os.path.join(self.folder, "config/party.textproto"), "w", encoding="utf-8") as file:
            file.write(party.config)
        for file in ("roster.textproto", "pinned.textproto"):
            shutil.copy(os.path.join(party.chain, file), os.path.join(self.folder, "public"))
        shutil.copytree(os.path.join(party.chain, "table"), os.path.join(self.folder, "table/table"))
        for volume in ("state", "tmp", "keys", "table"):
            os.chown(os.path.join(self.folder, volume), 0, 10001)
            os.chmod(os.path.join(self.folder, volume), 0o2777)
        for file, line in (("passwd", "shoal:x:10001:10001::/:/bin/sh"), ("group", "shoal:x:10001:"),
                           ("hosts", "127.0.0.1 localhost\n" + "\n".join(
                               f"{address} {name}.bob" for name, address in party.addresses.items()))):
            with open(os.path.join(self.folder, file), "w", encoding="utf-8") as out:
                out.write(f"root:x:0:0::/:/bin/sh\n{line}\n" if file == "passwd" else line + "\n")
        self.process = None

    def start(self):
        # Volumes in memory are new with each pod.
        for volume in ("tmp", "keys"):
            for one in os.scandir(os.path.join(self.folder, volume)):
                shutil.rmtree(one) if one.is_dir() else os.remove(one)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.party.hosts.inside(self.name) + ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "bash",
                                                      "-c", f"hostname {self.name}\n" + POD, "pod", self.folder,
                                                      self.party.bin, SSHD, *self.command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self, words):
        if not os.path.exists(self.log):
            return 0
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read().count(words)

    def signal(self, number):
        """To the container's first process."""
        [child] = run("pgrep", "-P", str(self.process.pid)).split()
        os.kill(int(child), number)

    def pids(self, program):
        found = []
        for pid in run("ip", "netns", "pids", self.party.hosts.names[self.name]).split():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if os.path.basename(file.read().split(b"\0")[0]) == program.encode():
                        found.append(int(pid))
            except OSError:
                pass
        return found


class Party:
    """The pods of the file, and their Secrets as docs/kubernetes.md makes them."""

    def __init__(self, folder, chain, hosts, documents):
        self.folder, self.chain, self.hosts = folder, chain, hosts
        [self.config] = [one["data"]["party.textproto"] for one in documents if one["kind"] == "ConfigMap"]
        sets = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "StatefulSet"}
        self.addresses = pod_addresses(documents)
        self.bin = os.path.join(folder, "bin")
        os.makedirs(self.bin)
        for source, name in ((f"{BIN}/shoal/shoal", "shoal"), (f"{BIN}/shoald/machines/shoald-machines", "shoald-machines"),
                             (f"{ROOT}/scripts/party-machines", "party-machines"),
                             (f"{ROOT}/configs/kubernetes/machine.sh", "machine")):
            shutil.copy(os.path.realpath(source), os.path.join(self.bin, name))
            os.chmod(os.path.join(self.bin, name), 0o755)
        for name in ("head", "other"):
            os.makedirs(os.path.join(folder, "ssh", name))
        ssh = os.path.join(folder, "ssh")
        for path in ("head/key", "other/host"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "shoal", "-f", os.path.join(ssh, path))
        with open(os.path.join(ssh, "other/host.pub"), encoding="utf-8") as host, \
                open(os.path.join(ssh, "head/known_hosts"), "w", encoding="utf-8") as known:
            known.write("[bob-machine-*.bob]:2222 " + host.read())
        shutil.move(os.path.join(ssh, "head/key.pub"), os.path.join(ssh, "other/authorized_keys"))
        self.pods = []
        for name, spec in sets.items():
            head = name == "bob-head"
            for i in range(spec["replicas"]):
                self.pods.append(Pod(self, f"{name}-{i}", spec["template"]["spec"]["containers"][0], {
                    "party": os.path.join(chain, "party-2" if head else "party-2.machines"),
                    "ssh": os.path.join(ssh, "head" if head else "other")}))
        self.head, *self.others = self.pods

    def enforce(self, documents):
        """The NetworkPolicy, at each pod."""
        [policy] = [one["spec"] for one in documents if one["kind"] == "NetworkPolicy"]

        def networks(peer):
            if "ipBlock" in peer:
                return [peer["ipBlock"]["cidr"]]
            if "namespaceSelector" in peer:
                return []  # of the cluster's names, which are in files here
            heads = "machine" in peer["podSelector"]["matchLabels"]
            return [self.addresses[pod.name] + "/32" for pod in ([self.head] if heads else self.pods)]

        def rules(direction, peers):
            return [(network, port["protocol"].lower(), port["port"], port.get("endPort", port["port"]))
                    for rule in policy[direction] for peer in rule[peers] for network in networks(peer)
                    for port in rule["ports"]]

        for pod in self.pods:
            routing_rules.enforce(self.hosts.names[pod.name], rules("egress", "to"), rules("ingress", "from"))


def pod_addresses(documents):
    names = [f"{one['metadata']['name']}-{i}" for one in documents if one["kind"] == "StatefulSet"
             for i in range(one["spec"]["replicas"])]
    return {name: f"10.20.30.{i}" for i, name in enumerate(names, 1)}


def query(hosts, chain, name):
    """A new client asks; all answers are right."""
    with open(os.path.join(chain, "client.textproto"), encoding="utf-8") as file:
        config = file.read().replace("client.state", f"{name}.state") + "timeout_s: 170\n"
    path = os.path.join(chain, f"{name}.textproto")
    with open(path, "w", encoding="utf-8") as file:
        file.write(config)
    said = run(*hosts.inside("alice"), f"{BIN}/shoal/shoal", "query", "--config", path, "key-3", "key-7", "no-such-key")
    for line in ("key-3\tfound\tvalue 9\tyes", "key-7\tfound\tvalue 49\tyes", "no-such-key\tabsent\t\tyes"):
        if line not in said.splitlines():
            raise Failed(f"{name}: {said}")


def test(folder, hosts):
    with open(os.path.join(ROOT, "configs/kubernetes/machines.yaml"), encoding="utf-8") as file:
        documents = list(yaml.safe_load_all(file))
    addresses = pod_addresses(documents)
    for host, address in (("alice", BEFORE), ("carol", AFTER), *addresses.items()):
        hosts.add(host, address)
    records = os.path.join(folder, "records.tsv")
    with open(records, "w", encoding="utf-8") as file:
        file.writelines(f"key-{i}\tvalue {i * i}\n" for i in range(1, KEYS + 1))
    chain = os.path.join(folder, "chain")
    run(os.path.join(ROOT, "scripts/local-chain"), "create", chain, "--machines", f"1 {len(addresses)} 1", "--hosts",
        f"{BEFORE} {','.join(addresses.values())} {AFTER}", "--protect", "lookup", "--pad", "4", "--rounds",
        "open_ahead: 1 onions_window_s: 5 queries_window_s: 10 answers_window_s: 60", "--", "--tsv", records, "--name",
        "squares", "--row-bytes", "128", env={**os.environ, "SHOAL_BIN": BIN})
    party = Party(folder, chain, hosts, documents)
    party.enforce(documents)
    head, machine = hosts.names[party.head.name], hosts.names[party.others[0].name]
    for namespace, called, port, expected in (
            (head, party.others[0], 2222, True), (machine, party.head, 7405, True), (machine, party.others[1], 7410, True),
            (head, party.others[0], 7301, False), (machine, party.head, 9464, False)):
        if routing_rules.reaches(namespace, addresses[called.name], port) != expected:
            raise Failed(f"a packet to {called.name} port {port} {'does not go' if expected else 'goes'} out")

    shoalds = []
    for host, number in (("carol", 3), ("alice", 1)):
        with open(os.path.join(chain, f"party-{number}.log"), "ab") as log:
            shoalds.append(subprocess.Popen(hosts.inside(host) + [
                f"{BIN}/shoald/shoald", "--config", os.path.join(chain, f"party-{number}.textproto")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    # The head comes first, and waits.
    party.head.start()
    await_that("the head does not wait", lambda: party.head.said("waits for bob-machine-0.bob"), START_S)
    for pod in party.others:
        pod.start()
    for pod in party.pods:
        await_that(f"{pod.name} does not listen", lambda pod=pod: pod.said("listens on"), START_S)
    query(hosts, chain, "first")

    [victim] = party.others[1].pids("shoald-machines")
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    code = party.head.process.wait(timeout=120)
    took_s = time.monotonic() - began
    if code != 1:
        raise Failed(f"the head's container ended with {code}")
    print(f"the head's container had ended {took_s:.0f} s after a machine was killed")
    if took_s > END_S:
        raise Failed("that is too long")
    await_that("a machine of before is left", lambda: not any(pod.pids("shoald-machines") for pod in party.pods), END_S)
    listening = party.head.said("listens on")
    party.head.start()
    await_that("the party does not start again", lambda: party.head.said("listens on") > listening, START_S)
    query(hosts, chain, "second")

    party.head.signal(signal.SIGTERM)
    code = party.head.process.wait(timeout=120)
    if code != 0:
        raise Failed(f"the head's container, told to end, ended with {code}")
    for pod in party.pods:
        await_that(f"{pod.name} does not end in good order", lambda pod=pod: pod.said("all machines end in good order"), 30)
    for pod in party.others:
        pod.signal(signal.SIGTERM)
        pod.process.wait(timeout=60)
    # Nothing was written where a container cannot, and no machine had the signing key but the head.
    for pod in party.others:
        if os.path.exists(os.path.join(pod.folder, "keys/party/bls.key")):
            raise Failed(f"{pod.name} has the signing key")
    for process in shoalds:
        process.terminate()
        process.wait(timeout=60)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if not os.path.exists(os.path.join(SSHD, "usr/sbin/sshd")):
        raise SystemExit(f"kubernetes_machines_test: no sshd in {SSHD}; run: scripts/setup --test")
    try:
        hosts = Hosts()
        run("unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt")
    except PermissionError as error:
        left_out.leave_out("kubernetes_machines_test", "pods in network namespaces", error)
        return
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    try:
        test(folder, hosts)
        print("kubernetes_machines_test: every answer is right")
    except BaseException:
        for top, _, files in os.walk(folder):
            for name in files:
                if name.endswith(".log"):
                    with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
                        print(f"{name}:", file.read()[-2500:], sep="\n", file=sys.stderr)
        raise
    finally:
        hosts.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
