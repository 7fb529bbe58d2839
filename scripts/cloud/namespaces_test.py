"""A whole experiment by scripts/aws, on machines that are network namespaces of this one.

moto and the recorder stand for the provider (provider.py), and a program named ssh enters the namespace of a machine.
Everything else is real: scripts/aws, three parties in two regions, TLS between them, a crowd, verified answers. A machine's
private address is known inside its region alone, its public one everywhere. The script of the first boot runs, with
files of its own where the system's would be, and with programs that only note what they are asked in place of systemctl,
apt-get and nft. What the security groups let through is not enforced here; aws_test.py computes it.

Needs root. Where namespaces are not permitted it is skipped, and says so in Bazel's test.xml. SHOAL_BIN has the programs,
as bazel-bin/src.
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
from cloud import provider as provider_module, workload  # noqa: E402

BIN = os.path.abspath(os.environ["SHOAL_BIN"])
EXPERIMENT = """
name: "namespaces"
parties { name: "alice" zone: "eu-central-1a" instance_type: "c7a.xlarge" }
parties { name: "bob" zone: "eu-central-1a" instance_type: "c7a.xlarge" }
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

# Stands for ssh: a host whose key is not the one that is known gets no command, nor does a user whose key the machine's
# first boot did not put there.
SSH = r"""#!/usr/bin/env bash
set -u
options=()
while [ $# -gt 0 ]; do
  case $1 in
    -T) shift ;;
    -F | -i) shift 2 ;;
    -o) options+=("$2"); shift 2 ;;
    *) host=${1#admin@} command=$2; break ;;
  esac
done
machine=$SHOAL_MACHINES/$host
[[ " ${options[*]} " == *" StrictHostKeyChecking=yes UserKnownHostsFile=known_hosts "* ]] || exit 255
grep -qxF "$host $(cat "$machine/host_key")" known_hosts || { echo "Host key verification failed." >&2; exit 255; }
grep -qxF "$(cat key.pub)" "$machine/boot/authorized_keys" || { echo "Permission denied (publickey)." >&2; exit 255; }
cd "$machine/home"
exec ip netns exec "$(cat "$machine/namespace")" \
  env -i HOME="$machine/home" PATH="$SHOAL_MACHINES/bin:/usr/local/bin:/usr/bin:/bin" bash -c "$command"
"""

# The first boot, in folders of its own. What it left is copied to $1.
BOOT = r"""
set -euo pipefail
for folder in /home /etc/systemd/system /etc/security/limits.d /etc/ssh; do mount -t tmpfs none $folder; done
for file in passwd group; do cp /etc/$file "$1/$file"; done
echo 'admin:x:4242:4242::/home/admin:/bin/bash' >>"$1/passwd"
echo 'admin:x:4242:' >>"$1/group"
for file in passwd group; do mount --bind "$1/$file" /etc/$file; done
mkdir -m 700 /home/admin
echo "$3 root@machine" >/etc/ssh/ssh_host_ed25519_key.pub
: >"$1/console"
mount --bind "$1/console" /dev/console
PATH=$2:$PATH BOOT=$1 bash "$1/../user_data"
[ "$(stat -c '%U %a' /home/admin/.ssh/authorized_keys)" = 'admin 600' ]
cp /home/admin/.ssh/authorized_keys /etc/systemd/system/* /etc/security/limits.d/shoal.conf "$1"
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
    """A namespace for each machine; a switch for each region, and one for all."""

    def __init__(self, folder):
        self.folder = folder
        self._prefix = f"shaws{os.getpid()}"
        self._router = self._prefix + "r"
        self._names = {}  # identifier -> namespace
        self.boots = {}   # identifier -> what the first boot left: file -> content
        run("ip", "netns", "add", self._router)

    def prepare(self):
        run("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")
        for name in ["everywhere"] + REGIONS:
            run("ip", "-n", self._router, "link", "add", name, "type", "bridge")
            run("ip", "-n", self._router, "link", "set", name, "up")
        note = 'echo "$(basename "$0") $*" >>"$BOOT/asked"'
        for path, text in (("bin/sudo", 'exec "$@"'), ("bin/apt-get", 'echo "$@" >>"$HOME/apt-get"'),
                           ("first/systemctl", note), ("first/swapoff", note), ("first/apt-get", note),
                           ("first/nft", note)):
            path = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{text}\n")
            os.chmod(path, 0o755)

    def begin(self, machine, user_data):
        identifier, region = machine["InstanceId"], machine["Placement"]["AvailabilityZone"][:-1]
        name = f"{self._prefix}m{len(self._names)}"
        run("ip", "netns", "add", name)
        self._names[identifier] = name
        run("ip", "-n", name, "link", "set", "lo", "up")
        for card, switch, address in (("private", region, machine["PrivateIpAddress"]),
                                      ("public", "everywhere", machine["PublicIpAddress"])):
            port = f"{card[:3]}{len(self._names)}"
            run("ip", "-n", self._router, "link", "add", port, "type", "veth", "peer", "name", card, "netns", name)
            run("ip", "-n", self._router, "link", "set", port, "master", switch, "up")
            run("ip", "-n", name, "address", "add", f"{address}/8", "dev", card)
            run("ip", "-n", name, "link", "set", card, "up")
        home = os.path.join(self.folder, machine["PublicIpAddress"])
        os.makedirs(os.path.join(home, "home"))
        for file, text in (("namespace", name), ("user_data", user_data), ("host_key", self.host_key(identifier))):
            with open(os.path.join(home, file), "w", encoding="utf-8") as out:
                out.write(text)
        boot = os.path.join(home, "boot")
        os.makedirs(boot)
        run("unshare", "--mount", "bash", "-c", BOOT, "boot", boot, os.path.join(self.folder, "first"),
            self.host_key(identifier))
        self.boots[identifier] = {file: open(os.path.join(boot, file), encoding="utf-8").read()
                                  for file in sorted(os.listdir(boot))}

    def console(self, identifier):
        """What the first boot wrote there."""
        return self.boots[identifier]["console"]

    @staticmethod
    def host_key(identifier):
        return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + (identifier.replace("-", "") * 4)[:43]

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
        run("ip", "netns", "delete", self._router)


def check_libraries():
    """What the experiment installs for programs that it copies is what these need."""
    needed = set()
    for program in ("shoal", "shoald"):
        for path in re.findall(r"=> (/\S+)", run("ldd", os.path.join(BIN, program, program))):
            done = subprocess.run(["dpkg", "-S", os.path.realpath(path)], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, check=False)
            needed.add(done.stdout.split(":")[0])
    always = {"libc6", "libgcc-s1", "zlib1g", "libsystemd0", "libcap2", "libgcrypt20", "libgpg-error0", "liblz4-1",
              "liblzma5", "libzstd1", ""}
    if needed - always != set(workload.LIBRARIES):
        fail(f"libraries: {sorted(needed - always)} are needed, workload.LIBRARIES has {sorted(workload.LIBRARIES)}")


def secrets_in(folder):
    """The content of every secret file of the parties."""
    found = {}
    for top, _, files in os.walk(folder):
        for name in files:
            if name in ("bls.key", "tls.key"):
                with open(os.path.join(top, name), "rb") as file:
                    found[os.path.join(top, name)] = file.read()
    return found


def leave_out(why):
    left_out.leave_out("namespaces_test", "an experiment in network namespaces", why)


def main():
    # Whoever ends it early leaves nothing either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    try:
        machines = Machines(os.path.join(folder, "machines"))
    except PermissionError as error:
        leave_out(error)
        return
    provider = None
    try:
        try:
            machines.prepare()
        except PermissionError as error:
            leave_out(error)
            return
        check_libraries()
        provider = provider_module.Provider()
        provider.on_run, provider.console = machines.begin, machines.console
        secrets = {}

        def end(identifier):
            secrets.update(secrets_in(machines.folder))
            machines.end(identifier)

        provider.on_end = end
        for name, text in (("experiment", EXPERIMENT), ("bin/ssh", SSH)):
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
                 "SHOAL_MACHINES": machines.folder}, check=False)
        if done.returncode != 0:
            for top, _, files in os.walk(folder):
                for name in files:
                    if name == "log" or name.startswith("ssh-"):
                        with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
                            print(f"{top}/{name}:", file.read()[-1500:], sep="\n", file=sys.stderr)
            fail(f"scripts/aws: exit code {done.returncode}")
        with open(os.path.join(out, "points.csv"), encoding="utf-8", newline="") as file:
            [row] = list(csv.DictReader(file))
        if row["answers_checked"] != "12" or row["parties"] != "3" or float(row["online_s"]) <= 0:
            fail(f"points.csv: {row}")
        for name in ("rounds.png", "rounds.svg", "round-1.json", "logs/alice.log", "logs/bob.log", "logs/carol.log"):
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
        # bob and carol are in different regions: bob called carol at her public address.
        if len(secrets) != 6:
            fail(f"not two secret keys for each of three parties: {sorted(secrets)}")
        kept = [os.path.join(top, name) for where in (out, os.path.join(folder, "state"))
                for top, _, files in os.walk(where) for name in files]
        for path in kept:
            with open(path, "rb") as file:
                content = file.read()
            for name, secret in secrets.items():
                if secret.strip() in content:
                    fail(f"the secret {name} came home in {path}")
        if provider.refused or provider.left(REGIONS):
            fail(f"refused: {provider.refused}; left: {provider.left(REGIONS)}")
        print("namespaces_test: one round over three machines in two regions, every answer verified, nothing left")
    finally:
        machines.close()
        if provider:
            provider.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
