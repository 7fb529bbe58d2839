"""A whole experiment by scripts/aws, on machines that are network namespaces of this one.

moto and the recorder stand for the provider (provider.py). Everything else is real: scripts/aws, three parties in two
regions, two of them of two machines each, sshd on every machine and ssh from the operator and from a party's head to its
other machine, Open MPI, TLS between parties, a crowd, verified answers. A machine's private address is known inside its region
alone, its public one everywhere, and packets pass by the rules of the security groups (routing_rules.py). The script of the first boot runs, with files of
its own where the system's would be, and with programs that only note what they are asked in place of systemctl, apt-get
and nft.

Needs root, and sshd (scripts/setup --test). Where namespaces are not permitted it is skipped, and says so in Bazel's
test.xml. SHOAL_BIN has the programs, as bazel-bin/src.
"""

import calendar
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import left_out  # noqa: E402
from cloud import provider as provider_module, routing_rules, workload  # noqa: E402

BIN = os.path.abspath(os.environ["SHOAL_BIN"])
EXPERIMENT = """
name: "namespaces"
parties { name: "alice" zone: "eu-central-1a" instance_type: "c7a.xlarge" machines: 2 }
parties { name: "bob" zone: "eu-central-1a" instance_type: "c7a.xlarge" machines: 2 }
parties { name: "carol" zone: "eu-west-1a" instance_type: "c7a.xlarge" }
crowd { zone: "eu-central-1a" instance_type: "c7a.xlarge" }
rounds { records: 200 queries: 12 keys_per_row: 4 }
paid_minutes: 60
traffic_gib: 2
prices { region: "eu-central-1" instance_type: "c7a.xlarge" usd_per_hour: 0.25 }
prices { region: "eu-west-1" instance_type: "c7a.xlarge" usd_per_hour: 0.3 }
operator_cidr: "11.22.33.44/32"
"""
REGIONS = ["eu-central-1", "eu-west-1"]
OPERATOR = "11.22.33.44"
SSHD = os.path.join(os.path.dirname(os.path.dirname(HERE)), ".deps", "sshd")

# The operator's ssh: from where the operator's address is.
SSH = """#!/bin/sh
exec nsenter --net=/run/netns/{namespace} {ssh} "$@"
"""

# A machine: its first boot, in folders of its own, and then sshd. What the boot left is copied to boot/.
MACHINE = r"""
set -euo pipefail
mount -t tmpfs none /mnt
for folder in boot first bin home sshd; do mkdir /mnt/$folder; done
for folder in boot home; do mount --bind "$1/$folder" /mnt/$folder; done
for folder in first bin; do mount --bind "$2/$folder" /mnt/$folder; done
mount --bind "$3" /mnt/sshd
hostname "$4"
for folder in /home /etc/systemd/system /etc/security/limits.d /etc/ssh /run /tmp; do mount -t tmpfs none $folder; done
chmod 1777 /tmp
mkdir -m 755 /run/sshd
boot=/mnt/boot
for file in passwd group hosts; do cp /etc/$file $boot/$file; done
printf '%s\n' 'admin:x:4242:4242::/home/admin:/bin/bash' 'sshd:x:4243:65534::/run/sshd:/usr/sbin/nologin' >>$boot/passwd
echo 'admin:x:4242:' >>$boot/group
echo "$5 $4" >>$boot/hosts
for file in passwd group hosts; do mount --bind $boot/$file /etc/$file; done
mkdir -m 700 /home/admin
mount --bind /mnt/home /home/admin
chown admin:admin /home/admin
chmod 700 /home/admin
# Debian's user may do everything with sudo, of which there is apt-get here.
mount --bind /mnt/bin /usr/local/bin
ssh-keygen -q -t ed25519 -N '' -C root@machine -f /etc/ssh/ssh_host_ed25519_key
: >$boot/console
mount --bind $boot/console /dev/console
PATH=/mnt/first:$PATH BOOT=$boot bash $boot/user_data
[ "$(stat -c '%U %a' /home/admin/.ssh/authorized_keys)" = 'admin 600' ]
cp /home/admin/.ssh/authorized_keys /etc/systemd/system/* /etc/security/limits.d/shoal.conf $boot
cat >/etc/ssh/sshd_config <<END
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
END
LD_LIBRARY_PATH=/mnt/sshd/usr/lib/x86_64-linux-gnu exec /mnt/sshd/usr/sbin/sshd -f /etc/ssh/sshd_config -E $boot/sshd
"""


def fail(words):
    raise SystemExit(f"namespaces_test: {words}")


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        refused = re.search("Operation not permitted|Permission denied", done.stderr)
        raise (PermissionError if refused else OSError)(
            f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Machines:
    """A namespace for each machine, and for the operator; a switch for each region, and one for all."""

    def __init__(self, folder, provider_made):
        self.folder = folder
        self._prefix = f"shaws{os.getpid()}"
        self._router, self.operator = self._prefix + "r", self._prefix + "o"
        self._provider = provider_made
        self._names = {}  # identifier -> namespace
        self._count = 0
        self.boots = {}   # identifier -> what the first boot left: file -> content
        run("ip", "netns", "add", self._router)

    def prepare(self):
        run("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")
        for name in ["everywhere"] + REGIONS:
            run("ip", "-n", self._router, "link", "add", name, "type", "bridge")
            run("ip", "-n", self._router, "link", "set", name, "up")
        run("ip", "netns", "add", self.operator)
        self._join(self.operator, "public", "everywhere", OPERATOR + "/32")
        note = 'echo "$(basename "$0") $*" >>"$BOOT/asked"'
        for path, text in (("bin/sudo", 'exec "$@"'), ("bin/apt-get", 'echo "$@" >>"$HOME/apt-get"'),
                           ("first/systemctl", note), ("first/swapoff", note), ("first/apt-get", note),
                           ("first/nft", note)):
            path = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{text}\n")
            os.chmod(path, 0o755)

    def _join(self, name, card, switch, address):
        self._count += 1
        port = f"port{self._count}"
        run("ip", "-n", self._router, "link", "add", port, "type", "veth", "peer", "name", card, "netns", name)
        run("ip", "-n", self._router, "link", "set", port, "master", switch, "up")
        run("ip", "-n", name, "address", "add", address, "dev", card)
        run("ip", "-n", name, "link", "set", card, "up")

    def begin(self, machine, user_data):
        identifier, region = machine["InstanceId"], machine["Placement"]["AvailabilityZone"][:-1]
        private, public = machine["PrivateIpAddress"], machine["PublicIpAddress"]
        name = f"{self._prefix}m{len(self._names)}"
        run("ip", "netns", "add", name)
        self._names[identifier] = name
        run("ip", "-n", name, "link", "set", "lo", "up")
        self._join(name, "private", region, private + "/8")
        self._join(name, "public", "everywhere", public + "/8")
        run("ip", "-n", name, "route", "add", OPERATOR, "dev", "public")
        run("ip", "-n", self.operator, "route", "add", public, "dev", "public")
        folder = os.path.join(self.folder, public)
        for path in ("home", "boot"):
            os.makedirs(os.path.join(folder, path))
        with open(os.path.join(folder, "boot", "user_data"), "w", encoding="utf-8") as file:
            file.write(user_data)
        run("nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--uts", "bash", "-c", MACHINE, "machine", folder,
            self.folder, SSHD, "ip-" + private.replace(".", "-"), private)
        self.boots[identifier] = {}
        for file in sorted(os.listdir(os.path.join(folder, "boot"))):
            with open(os.path.join(folder, "boot", file), encoding="utf-8") as content:
                self.boots[identifier][file] = content.read()
        self.enforce()

    def console(self, identifier):
        """What the first boot wrote there."""
        return self.boots[identifier]["console"]

    def enforce(self):
        """Gives each machine's namespace what its security group says now: packets to others go nowhere."""
        for region in REGIONS:
            machines = {machine["InstanceId"]: machine for machine in self._provider.machines(region)}
            group_of = {identifier: machine["NetworkInterfaces"][0]["Groups"][0]["GroupId"]
                        for identifier, machine in machines.items()}
            groups = {group["GroupId"]: group
                      for group in self._provider.moto(region).describe_security_groups()["SecurityGroups"]}
            for identifier, name in self._names.items():
                if identifier not in machines:
                    continue
                out, into = [
                    [(network, rule["IpProtocol"], rule["FromPort"], rule["ToPort"])
                     for rule in groups[group_of[identifier]][field]
                     for network in [one["CidrIp"] for one in rule.get("IpRanges", [])] + [
                         machines[other]["PrivateIpAddress"] + "/32" for other in machines
                         for pair in rule.get("UserIdGroupPairs", []) if pair["GroupId"] == group_of[other]]]
                    for field in ("IpPermissionsEgress", "IpPermissions")]
                routing_rules.enforce(name, out, into)

    def reaches(self, caller, called, port):
        """Whether a packet of one machine to a port of another goes out, by their private addresses."""
        return routing_rules.reaches(self._names[caller["InstanceId"]], called["PrivateIpAddress"], port)

    def end(self, identifier):
        name = self._names.pop(identifier, None)
        if name:
            for pid in run("ip", "netns", "pids", name).split():
                subprocess.run(["kill", "-9", pid], check=False, stderr=subprocess.DEVNULL)
            run("ip", "netns", "delete", name)

    def close(self):
        for identifier in list(self._names):
            try:
                self.end(identifier)
            except OSError as error:
                print(f"namespaces_test: {error}", file=sys.stderr)
        for name in (self.operator, self._router):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def check_libraries():
    """What the experiment installs for programs that it copies is what these need."""
    def needed(*programs):
        packages = set()
        for program in programs:
            for path in re.findall(r"=> (/\S+)", run("ldd", os.path.join(BIN, program))):
                done = subprocess.run(["dpkg", "-S", os.path.realpath(path)], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True, check=False)
                packages.add(done.stdout.split(":")[0])
        return packages - {"libc6", "libgcc-s1", "zlib1g", "libsystemd0", "libcap2", "libgcrypt20", "libgpg-error0",
                           "liblz4-1", "liblzma5", "libzstd1", ""}

    small = needed("shoal/shoal", "shoald/shoald")
    if small != set(workload.LIBRARIES):
        fail(f"libraries: {sorted(small)} are needed, workload.LIBRARIES has {sorted(workload.LIBRARIES)}")
    # What Open MPI's own library needs comes with it.
    large = needed("shoald/machines/shoald-machines") - set(workload.LIBRARIES) - {
        "libevent-core-2.1-7", "libevent-pthreads-2.1-7", "libhwloc15", "libudev1"}
    if not large <= set(workload.LARGE_PARTY_LIBRARIES) or "libopenmpi3" not in large:
        fail(f"libraries: {sorted(large)} are needed, workload.LARGE_PARTY_LIBRARIES has {workload.LARGE_PARTY_LIBRARIES}")


def secrets_in(folder):
    """The content of every secret file of the parties."""
    found = {}
    for top, _, files in os.walk(folder):
        for name in files:
            if name in ("bls.key", "tls.key", "machines.key", "key"):
                with open(os.path.join(top, name), "rb") as file:
                    found[os.path.join(top, name)] = file.read()
    return found


def check_rules(machines, provider):
    """That the machines of a party reach each other's ports of Open MPI, and that nobody else does."""
    of = {}
    for machine in provider.machines("eu-central-1"):
        tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        of.setdefault(tags["shoal-step"].split("-")[0], []).append(machine)
    for caller, called, port, expected in (
            (of["bob"][0], of["bob"][1], 7405, True), (of["bob"][1], of["bob"][0], 22, True),
            (of["bob"][0], of["bob"][1], 7301, False), (of["alice"][0], of["bob"][1], 7301, True),
            (of["alice"][0], of["bob"][1], 7405, False), (of["alice"][0], of["bob"][1], 22, False),
            (of["crowd"][0], of["alice"][1], 7300, True), (of["crowd"][0], of["alice"][1], 7410, False)):
        if machines.reaches(caller, called, port) != expected:
            fail(f"a packet to {called['PrivateIpAddress']} port {port} {'does not go' if expected else 'goes'} out")


def leave_out(why):
    left_out.leave_out("namespaces_test", "an experiment in network namespaces", why)


def main():
    # Whoever ends it early leaves nothing either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if not os.path.exists(os.path.join(SSHD, "usr/sbin/sshd")):
        fail(f"no sshd in {SSHD}; run: scripts/setup --test")
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    provider = provider_module.Provider()
    try:
        machines = Machines(os.path.join(folder, "machines"), provider)
    except PermissionError as error:
        provider.close()
        leave_out(error)
        return
    try:
        try:
            machines.prepare()
        except PermissionError as error:
            leave_out(error)
            return
        check_libraries()
        provider.on_run, provider.on_rules = machines.begin, machines.enforce
        secrets, checked = {}, []

        def console(identifier):
            # It is asked for when there are all machines and rules.
            if not checked:
                check_rules(machines, provider)
                checked.append(True)
            return machines.console(identifier)

        provider.console = console

        def end(identifier):
            if not secrets:
                secrets.update(secrets_in(machines.folder))
            machines.end(identifier)

        provider.on_end = end
        for name, text in (("experiment", EXPERIMENT),
                           ("bin/ssh", SSH.format(namespace=machines.operator, ssh=shutil.which("ssh")))):
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(os.path.join(folder, "bin/ssh"), 0o755)
        out = os.path.join(folder, "out")
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(HERE, "main.py"), "run", os.path.join(folder, "experiment"),
             "--budget-usd", "5", "--programs", BIN, "--out", out, "--state", os.path.join(folder, "state")],
            env={**os.environ, **provider.environment, "PATH": os.path.join(folder, "bin") + ":" + os.environ["PATH"],
                 "MPLBACKEND": "agg"}, check=False)
        if done.returncode != 0:
            for top, _, files in os.walk(folder):
                for name in files:
                    if name in ("log", "launcher.log", "sshd") or name.startswith("ssh-"):
                        with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
                            print(f"{top}/{name}:", file.read()[-1500:], sep="\n", file=sys.stderr)
            fail(f"scripts/aws: exit code {done.returncode}")
        with open(os.path.join(out, "points.csv"), encoding="utf-8", newline="") as file:
            [row] = list(csv.DictReader(file))
        if row["answers_checked"] != "12" or row["parties"] != "3" or float(row["online_s"]) <= 0:
            fail(f"points.csv: {row}")
        for name in ("rounds.png", "round-1.json", "logs/alice.0.log", "logs/alice.1.log", "logs/bob.0.log",
                     "logs/bob.1.log", "logs/carol.log"):
            if not os.path.getsize(os.path.join(out, name)):
                fail(f"{name} is empty")
        for identifier, left in machines.boots.items():
            asked = left["asked"].splitlines()
            if asked[:2] != ["systemctl daemon-reload", "systemctl enable --now shoal-end.timer"]:
                fail(f"{identifier}: the timer is not the first thing: {asked}")
            if "systemctl enable --now shoal-traffic.service" not in asked or \
                    "quota over 2048 mbytes drop" not in left["shoal-traffic.nft"]:
                fail(f"{identifier}: no end of its traffic: {asked}, {left['shoal-traffic.nft']}")
            when = re.search(r"OnCalendar=(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\n", left["shoal-end.timer"])
            minutes = (calendar.timegm(time.strptime(when[1], "%Y-%m-%d %H:%M:%S")) - time.time()) / 60
            if not 30 < minutes <= 60:
                fail(f"{identifier}: ends in {minutes} minutes, not in 60 from its boot")
        # Of alice and bob: at the head three keys of the party and one for ssh, at the other machine two. Of carol: two.
        # bob and carol are in different regions: both machines of bob called carol at her public address.
        if sorted(map(os.path.basename, secrets)) != ["bls.key"] * 3 + ["key"] * 2 + ["machines.key"] * 4 + ["tls.key"] * 5:
            fail(f"other secret keys: {sorted(secrets)}")
        kept = [os.path.join(top, name) for where in (out, os.path.join(folder, "state"))
                for top, _, files in os.walk(where) for name in files]
        for path in kept:
            with open(path, "rb") as file:
                content = file.read()
            for name, secret in secrets.items():
                if secret.strip() in content:
                    fail(f"the secret {name} came home in {path}")
        if not checked:
            fail("nobody has looked at the rules")
        if provider.refused or provider.left(REGIONS):
            fail(f"refused: {provider.refused}; left: {provider.left(REGIONS)}")
        print("namespaces_test: one round over five machines in two regions, every answer verified, nothing left")
    finally:
        machines.close()
        provider.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
