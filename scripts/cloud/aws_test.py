"""Tests of scripts/aws against moto, behind the recorder of provider.py. No cloud is reached, and no machine is there.

aws_test.sh runs it, not as the main module: a forked process would load that once more, with a provider of its own.

KillTest kills the program at a call of each kind. At every call, which takes minutes:

  SHOAL_EACH_CALL=1 scripts/cloud/aws_test.sh KillTest
"""

import contextlib
import csv
import io
import ipaddress
import itertools
import json
import multiprocessing
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import botocore.exceptions

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

from cloud import provider as provider_module  # noqa: E402

PROVIDER = provider_module.Provider()
# Before the processes are forked, and before boto3 looks.
os.environ.update(PROVIDER.environment)
os.environ["PYTHONPATH"] = os.path.dirname(HERE)

from cloud import aws, experiment, forked, infrastructure, journal, large_party, main, permissions, remote, workload  # noqa: E402
from lib import chain  # noqa: E402 (workload has added its folder)

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["cloud.forked"])

REGIONS = ["eu-central-1", "eu-west-1"]
OPERATOR = "11.22.33.44/32"
# Three parties in two regions: neighbours inside a region, and between regions.
PARTIES = """
parties { name: "alice" zone: "eu-central-1a" instance_type: "c7a.xlarge" }
parties { name: "bob" zone: "eu-central-1a" instance_type: "c7a.xlarge" }
parties { name: "carol" zone: "eu-west-1a" instance_type: "c7a.xlarge" }
"""
REST = """
crowd { zone: "eu-central-1a" instance_type: "c7a.xlarge" }
rounds { records: 100 queries: 8 }
paid_minutes: 60
traffic_gib: 2
prices { region: "eu-central-1" instance_type: "c7a.xlarge" usd_per_hour: 0.25 }
prices { region: "eu-west-1" instance_type: "c7a.xlarge" usd_per_hour: 0.3 }
operator_cidr: "11.22.33.44/32"
"""
LARGE = 'name: "large"' + PARTIES + REST
# The least that there is: for tests that make it again and again.
SMALL = 'name: "small"' + PARTIES.replace("eu-west-1", "eu-central-1").replace(
    'parties { name: "bob" zone: "eu-central-1a" instance_type: "c7a.xlarge" }\n', "") + REST
MANY = 'name: "many"' + PARTIES.replace('"bob"', '"bob" machines: 3') + REST
# A study: one machine.
ALONE = 'name: "small"' + REST.replace("rounds { records: 100 queries: 8 }", 'study { name: "noise" arguments: "--tiny" }')
# SMALL with a party of two machines, for which there are more calls.
SMALL_PAIR = SMALL.replace('"carol"', '"carol" machines: 2')


def collapsed(operations):
    """Without repetitions of questions."""
    return [name for name, _ in itertools.groupby(operations)]


def load_tests(_loader, tests, _pattern):
    """Those of this shard, when Bazel runs several: each has a provider of its own."""
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        with open(os.environ["TEST_SHARD_STATUS_FILE"], "w", encoding="utf-8"):
            pass
    count, index = int(os.environ.get("TEST_TOTAL_SHARDS", 1)), int(os.environ.get("TEST_SHARD_INDEX", 0))
    return unittest.TestSuite(list(test for suite in tests for test in suite)[index::count])


class Test(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        PROVIDER.reset()
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.ssh()
        self._number = 0

    def ssh(self, does=":"):
        """Puts a program there that stands for ssh where no command needs a machine.

        It refuses other options, and a host whose key is not known, and then does what `does` says, in a shell.
        """
        options = ("BatchMode=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=known_hosts",
                   "GlobalKnownHostsFile=/dev/null", "HostKeyAlgorithms=ssh-ed25519", "IdentitiesOnly=yes", "ForwardAgent=no",
                   "ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=4", "LogLevel=ERROR")
        self.write("bin/ssh", "#!/bin/sh\n"
                   f"case \"$*\" in '-T -F /dev/null -i key -o {' -o '.join(options)} admin@'*) ;;"
                   " *) echo verification failed >&2; exit 255 ;; esac\n"
                   "for word; do case $word in admin@*) host=${word#admin@} ;; esac; done\n"
                   "grep -q \"^$host ssh-ed25519 \" known_hosts || exit 255\n"
                   f"{does}\n")
        os.chmod(os.path.join(self.folder, "bin/ssh"), 0o755)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def aws(self, *arguments, kill_at=None, kill_before=False, code=0, meanwhile=lambda process: None):
        """Runs scripts/aws; returns what it said. `code` None: any. With `kill_at`, it dies at its n-th call.

        `meanwhile` is called with the process.
        """
        self._number += 1
        log = os.path.join(self.folder, f"log-{self._number}")
        process = FORKS.Process(target=forked.run, args=([
            *map(str, arguments), "--state", os.path.join(self.folder, "state")], log,
            {"PATH": os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]}))
        PROVIDER.kill = process.kill if kill_at else None
        PROVIDER.kill_at = kill_at and len(PROVIDER.calls) + kill_at
        PROVIDER.kill_before = kill_before
        process.start()
        meanwhile(process)
        process.join()
        PROVIDER.kill = None
        with open(log, encoding="utf-8") as file:
            said = file.read()
        with open(log + ".out", encoding="utf-8") as file:
            self.printed = file.read()
        if code is not None and not kill_at:
            self.assertEqual(process.exitcode, code, said)
        self.killed = process.exitcode == -9
        return said

    def up(self, text, **options):
        return self.aws("up", self.write("experiment", text), "--budget-usd", 100, **options)

    def operations(self, first=0):
        return collapsed([call.operation for call in PROVIDER.calls[first:]])

    def assert_nothing_left(self):
        self.assertEqual(PROVIDER.left(REGIONS), [])


class UpAndDownTest(Test):
    def test_plan_prints_the_calls_that_are_made_in_their_order(self):
        self.up(LARGE)
        self.aws("down", "large")
        self.assert_nothing_left()
        self.assertEqual(PROVIDER.refused, [])
        made = [(call.service, call.region, call.operation) for call in PROVIDER.calls]
        self.aws("plan", self.write("experiment", LARGE))
        planned = [tuple(line.split()[:3]) for line in self.printed.splitlines() if line.startswith(("ec2 ", "sts "))]
        self.assertEqual(collapsed(made), collapsed(planned))

    def test_plan_calls_nobody(self):
        self.aws("plan", self.write("experiment", LARGE))
        self.assertEqual(PROVIDER.calls, [])
        self.assertIn("USD  at most", self.printed)
        self.assertIn("shoal keys generate; only the announcement leaves the machine", self.printed)

    def test_only_neighbours_the_crowd_and_the_operator_get_in(self):
        self.up(LARGE)
        machines, groups = {}, {}
        for region in REGIONS:
            for machine in PROVIDER.machines(region):
                tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
                machines[tags["shoal-step"].split("-")[0]] = (region, machine)
            for group in PROVIDER.moto(region).describe_security_groups()["SecurityGroups"]:
                groups[group["GroupId"]] = group
        self.assertEqual(set(machines), {"alice", "bob", "carol", "crowd"})

        def passes(rules, other, region, port, public):
            """Whether rules let a port through from or to another machine, by the address that is used."""
            for rule in rules:
                if rule["IpProtocol"] != "-1" and not rule["FromPort"] <= port <= rule["ToPort"]:
                    continue
                address = ipaddress.ip_address(other[1]["PublicIpAddress" if public else "PrivateIpAddress"])
                if any(address in ipaddress.ip_network(one["CidrIp"]) for one in rule.get("IpRanges", [])):
                    return True
                own = {one["GroupId"] for card in other[1]["NetworkInterfaces"] for one in card["Groups"]}
                if other[0] == region and not public and any(
                        pair["GroupId"] in own for pair in rule.get("UserIdGroupPairs", [])):
                    return True
            return False

        reached = set()
        for (a, caller), (b, called) in itertools.permutations(machines.items(), 2):
            def group(machine):
                return groups[machine[1]["NetworkInterfaces"][0]["Groups"][0]["GroupId"]]
            for port in (22, 5000, 7299, 7300, 7301, 7302, 7303, 9464):
                for public in (True, False):
                    if passes(group(caller)["IpPermissionsEgress"], called, caller[0], port, public) and passes(
                            group(called)["IpPermissions"], caller, called[0], port, public):
                        reached.add((a, b, port, "public" if public else "private"))
        self.assertEqual(reached, {("crowd", "alice", 7300, "private"), ("alice", "bob", 7301, "private"),
                                   ("bob", "carol", 7302, "public")})
        self.assert_rules(machines, groups)

    def assert_rules(self, machines, groups):
        """That the security groups of LARGE have these rules, and no others."""
        of = {name: machine["NetworkInterfaces"][0]["Groups"][0]["GroupId"] for name, (_, machine) in machines.items()}
        public = {name: machine["PublicIpAddress"] + "/32" for name, (_, machine) in machines.items()}

        def rules(name, field):
            return sorted((rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort"), where)
                          for rule in groups[of[name]][field]
                          for where in [one["CidrIp"] for one in rule.get("IpRanges", [])] +
                          [one["CidrIpv6"] for one in rule.get("Ipv6Ranges", [])] +
                          [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", [])])

        packages = [("tcp", 80, 80, "0.0.0.0/0"), ("tcp", 443, 443, "0.0.0.0/0")]
        operator = [("tcp", 22, 22, OPERATOR)]
        for name, come, go in (("crowd", [], [("tcp", 7300, 7300, of["alice"])]),
                               ("alice", [("tcp", 7300, 7300, of["crowd"])], [("tcp", 7301, 7301, of["bob"])]),
                               ("bob", [("tcp", 7301, 7301, of["alice"])], [("tcp", 7302, 7302, public["carol"])]),
                               ("carol", [("tcp", 7302, 7302, public["bob"])], [])):
            self.assertEqual(rules(name, "IpPermissions"), sorted(operator + come), name)
            self.assertEqual(rules(name, "IpPermissionsEgress"), sorted(packages + go), name)

    def test_everything_has_tags_and_machines_end_themselves(self):
        self.up(SMALL)
        starts = [call.parameters for call in PROVIDER.calls if call.operation == "RunInstances"]
        self.assertEqual(len(starts), 3)
        self.assertEqual(len({start["ClientToken"] for start in starts}), 3)
        user_data = next(iter(PROVIDER._user_data.values()))
        self.assertIn("+60 minutes", user_data)
        self.assertIn("quota over 2048 mbytes drop", user_data)
        # Also after a restart.
        self.assertIn("systemctl enable --now shoal-traffic.service", user_data)
        with open(os.path.join(self.folder, "state/small/key"), encoding="utf-8") as file:
            self.assertIn("PRIVATE KEY", file.read())
        self.up(SMALL.replace('"small"', '"saving"').replace("c7a.xlarge", "t3.large"))
        self.aws("down", "saving")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "state/saving"))),
                         ["journal.json", "known_hosts", "lock"] +
                         [f"ssh-{name}.log" for name in ("alice", "carol", "crowd")])
        # What the recorder asks of every call (Provider._need_tags, _RunInstances) was there.
        self.assertEqual(PROVIDER.refused, [])

    def test_machines_that_start_and_end_slowly(self):
        PROVIDER.slow = 3
        self.up(SMALL)
        PROVIDER.slow = 3
        self.aws("down", "small")
        self.assert_nothing_left()
        self.assertEqual(PROVIDER.refused, [])

    def test_up_goes_on_where_it_was(self):
        self.up(SMALL)
        first = len(PROVIDER.calls)
        self.up(SMALL)
        self.assertFalse([name for name in self.operations(first) if not name.startswith(("Describe", "Get"))])
        said = self.up(SMALL.replace("60", "70"), code=2)
        self.assertIn("scripts/aws down small", said)

    def test_down_without_the_file(self):
        self.up(SMALL)
        self.aws("list", "--region", "eu-central-1")
        identifier = re.search(r"^small\t(\w{12})\teu-central-1\tby tags\t.*instance i-", self.printed, re.M)[1]
        self.assertRegex(self.printed, rf"(?m)^small\t{identifier}\teu-central-1\t\S+\t3 machines reached$")
        shutil.rmtree(os.path.join(self.folder, "state"))
        # Where nothing was ever found, nothing is known to be removed: not the second time either.
        for settle_s in (0, 6):
            said = self.aws("down", "small", "--id", identifier, "--region", "eu-west-1", "--settle-s", settle_s, code=1)
            self.assertIn(f"nothing has the id {identifier} in eu-west-1", said)
        # What shows itself late is looked for, counted from now.
        self.assertIn("looking for", said)
        said = self.aws("down", "small", "--id", identifier, "--region", "eu-central-1", "--settle-s", 0)
        self.assertIn("nothing is left in eu-central-1, eu-west-1", said)
        self.assert_nothing_left()
        # It was found once, so this is known.
        self.aws("down", "small", "--id", identifier, "--region", "eu-central-1", "--settle-s", 0)

    def test_an_id_is_no_pattern(self):
        self.up(SMALL)
        before = len(PROVIDER.left(REGIONS))
        for pattern in ("*", "????????????", "0123456789a*", "0123456789AB"):
            said = self.aws("down", "x", "--id", pattern, "--region", "eu-central-1", code=2)
            self.assertIn("--id: 12 digits", said)
        book = journal.Journal("x", os.path.join(self.folder, "state"), lambda: {"name": "x", "id": "*"})
        for kind in aws.KINDS:
            self.assertEqual(aws.Cloud(book).find("eu-central-1", kind), [])
        book.close()
        self.assertEqual(len(PROVIDER.left(REGIONS)), before)

    def test_down_leaves_what_is_of_another_experiment(self):
        self.up(SMALL)
        before = len(PROVIDER.left(REGIONS))
        self.up(LARGE)
        self.aws("down", "large")
        self.assertEqual(len(PROVIDER.left(REGIONS)), before)

    def test_down_with_another_account_is_refused(self):
        self.up(SMALL)
        PROVIDER.account = "999999999999"
        said = self.aws("down", "small", code=2)
        self.assertIn("999999999999", said)
        PROVIDER.account = provider_module.ACCOUNT
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_a_party_of_several_machines(self):
        self.up(MANY)
        self.assertEqual([line.split("\t")[0] for line in self.printed.splitlines()],
                         ["alice", "bob.0", "bob.1", "bob.2", "carol", "crowd"])
        groups = {group["GroupName"].rsplit("-", 1)[-1]: group
                  for region in REGIONS for group in PROVIDER.moto(region).describe_security_groups()["SecurityGroups"]}
        machines = {}
        for machine in PROVIDER.machines("eu-central-1") + PROVIDER.machines("eu-west-1"):
            [step] = [tag["Value"] for tag in machine["Tags"] if tag["Key"] == "shoal-step"]
            machines.setdefault(step.split("-")[0], []).append(machine)
        self.assertEqual(len(machines["bob"]), 3)
        own = groups["bob"]["GroupId"]

        def rules(name, field):
            """Of single addresses and of groups."""
            return {(rule["FromPort"], rule["ToPort"], where) for rule in groups[name][field]
                    for where in [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", [])] +
                    [one["CidrIp"] for one in rule.get("IpRanges", []) if one["CidrIp"] not in (OPERATOR, "0.0.0.0/0")]}

        # Open MPI's ports and ssh are open within the party, and to nobody else.
        inside = {(22, 22, own), (7400, 7419, own)}
        public = {machine["PublicIpAddress"] + "/32" for machine in machines["bob"]}
        [carol] = [machine["PublicIpAddress"] + "/32" for machine in machines["carol"]]
        self.assertEqual(rules("bob", "IpPermissions"), inside | {(7301, 7301, groups["alice"]["GroupId"])})
        self.assertEqual(rules("bob", "IpPermissionsEgress"), inside | {(7302, 7302, carol)})
        # Each of its machines calls the party after it.
        self.assertEqual(rules("carol", "IpPermissions"), {(7302, 7302, one) for one in public})
        self.assertEqual(rules("alice", "IpPermissionsEgress"), {(7301, 7301, own)})
        placed = {name.split("-", 2)[2]: group["strategy"] for (_, name), group in PROVIDER._groups.items()}
        self.assertEqual(placed, {"bob-cluster": "cluster", "eu-central-1-spread": "spread", "eu-west-1-spread": "spread"})
        self.aws("down", "many")
        self.assertEqual(PROVIDER.refused, [])
        self.assert_nothing_left()
        made = [(call.service, call.region, call.operation) for call in PROVIDER.calls]
        self.aws("plan", self.write("experiment", MANY))
        planned = [tuple(line.split()[:3]) for line in self.printed.splitlines() if line.startswith(("ec2 ", "sts "))]
        self.assertEqual(collapsed(made), collapsed(planned))
        self.assertIn("bob: ssh-keygen on its first machine", self.printed)
        self.assertIn("//src/shoald/machines:shoald-machines", self.printed)

    def test_machines_keep_their_order(self):
        self.up(MANY)
        [book] = [journal.peek(name, os.path.join(self.folder, "state")) for name in ["many"]]
        indices = {one["private"]: one["index"] for one in book["machines"].values() if one["group"] == "bob"}
        self.assertEqual(sorted(indices.values()), [0, 1, 2])
        # As `collect` and `run` see them, the head is the same.
        self.ssh("echo \"$host $*\" >>log.txt")
        self.aws("collect", "many", "--out", os.path.join(self.folder, "out"))
        for private, index in indices.items():
            [public] = [one["public"] for one in book["machines"].values() if one["private"] == private]
            with open(os.path.join(self.folder, "state/many/known_hosts"), encoding="utf-8") as file:
                self.assertIn(public, file.read())
            self.assertTrue(os.path.exists(os.path.join(self.folder, f"out/logs/bob.{index}.log")))


class LargePartyTest(unittest.TestCase):
    """ssh from a party's head to its other machines: as namespaces_test.py uses it with sshd, here what it must have."""

    KEY = b"ssh-ed25519 " + b"A" * 68 + b" shoal-machines\n"

    def connect(self, public_key):
        """Connects a party of three; returns the party, and (machine, command, what it was given) in order."""
        class There:
            host_keys = {f"i-{i}": f"ssh-ed25519 {i}" for i in range(3)}
            asked = []

            def run(self, machine, command, given=b"", **_):
                self.asked.append((machine.index, command, given))
                return public_key

            def put(self, machine, path, content):
                self.asked.append((machine.index, path, content))

            def each(self, machines, do):
                return [do(machine) for machine in machines]

        group = type("Group", (), {"number": 2, "name": "bob", "machines": 3})()
        group.running = [infrastructure.Machine(group, i, f"i-{i}", f"10.0.2.{i + 4}", "") for i in range(3)]
        there = There()
        party = large_party.LargeParty(there, group)
        party.connect()
        return party, there.asked

    def test_only_the_head_gets_in_and_only_to_the_machines_that_were_made(self):
        party, asked = self.connect(self.KEY)
        self.assertIn((0, "machines/known_hosts", b"10.0.2.5 ssh-ed25519 1\n10.0.2.6 ssh-ed25519 2\n"), asked)
        line = b'from="10.0.2.4",restrict ' + self.KEY
        self.assertEqual([(machine, given) for machine, command, given in asked if "authorized_keys" in command],
                         [(1, line), (2, line)])
        launcher = party.launcher()
        for option in ("BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null"):
            self.assertIn(f" -o {option} ", launcher)
        self.assertIn("--network 10.0.2.0/24 ", launcher)
        self.assertIn("--host 10.0.2.4 --host 10.0.2.5 --host 10.0.2.6 -- ", launcher)

    def test_what_is_no_key_goes_nowhere(self):
        for words in (b"", self.KEY * 2, b'command="x" ' + self.KEY, self.KEY.replace(b"A", b"-", 1)):
            with self.subTest(words), self.assertRaisesRegex(aws.Failed, "no public key"):
                self.connect(words)


# Whether KillTest takes every call, or the first one of each kind.
EACH_CALL = bool(os.environ.get("SHOAL_EACH_CALL"))


class KillTest(Test):
    """Killed at a call, after it takes place or before: `down` leaves nothing, and `up` goes on."""

    def kill_each(self, prepare, command, afterwards, before=(False, True)):
        """Kills `command`, which takes options of Test.aws, at its calls: at each once after it takes place, once before.

        Each time the account is new, and `prepare` has run. `afterwards` is called with the call's number. Returns the
        names of the calls.
        """
        def begin():
            PROVIDER.reset()
            shutil.rmtree(os.path.join(self.folder, "state"), ignore_errors=True)
            prepare()
            return len(PROVIDER.calls)

        first, kills = begin(), 0
        command()
        operations = [call.operation for call in PROVIDER.calls[first:]]
        for kill_before in before:
            for number, operation in enumerate(operations, 1):
                if not EACH_CALL and operation in operations[:number - 1]:
                    continue
                with self.subTest(number=number, operation=operation, kill_before=kill_before):
                    first = begin()
                    command(kill_at=number, kill_before=kill_before)
                    self.assertTrue(self.killed)
                    self.assertEqual([call.operation for call in PROVIDER.calls[first:]], operations[:number])
                    afterwards(number)
                    self.assertEqual(PROVIDER.refused, [])
                    kills += 1
        print(f"{self.id()}: {kills} kills, {len(operations)} calls of {len(set(operations))} kinds", file=sys.stderr)
        return operations

    def assert_all_kinds(self, operations, steps):
        """That there is a call of every kind that `steps` would make for the larger experiment."""
        plan = aws.Plan("many", io.StringIO())
        steps(plan, experiment.Experiment(MANY))
        self.assertEqual(set(operations), {"GetCallerIdentity", *plan.operations})

    def test_down_after_up_was_killed(self):
        def down(number):
            # Nothing shows itself late here. The first call says whose the credentials are: nothing has begun.
            self.aws("down", "small", "--settle-s", 0, code=2 if number == 1 else 0)
            self.assert_nothing_left()

        self.assert_all_kinds(
            self.kill_each(lambda: None, lambda **options: self.up(SMALL_PAIR, **options), down),
            lambda plan, one: infrastructure.Up(plan, one, "key").run())

    def test_down_after_down_was_killed(self):
        def down(_=0, **options):
            self.aws("down", "small", "--settle-s", 0, **options)
            if not options:
                self.assert_nothing_left()

        def steps(plan, one):
            infrastructure.Up(plan, one, "key").run()
            plan.operations.clear()
            infrastructure.Down(plan, REGIONS).run()

        # One machine has calls of all kinds.
        text = SMALL_PAIR if EACH_CALL else ALONE
        self.assert_all_kinds(self.kill_each(lambda: self.up(text), down, down), steps)

    def test_up_after_up_was_killed(self):
        self.up(SMALL_PAIR)
        whole = len(PROVIDER.left(REGIONS))

        def up(_=0, **options):
            self.up(SMALL_PAIR, **options)
            if not options:
                self.assertEqual(len(PROVIDER.left(REGIONS)), whole, PROVIDER.left(REGIONS))

        # What took place and is not known to have is what could be made twice.
        self.kill_each(lambda: None, up, up, (False, True) if EACH_CALL else (False,))


class PassingTest(Test):
    """Errors that pass, and errors in one region, do not stop `down`."""

    def test_each_call_of_down_fails_once(self):
        self.up(SMALL)
        # Every second call fails, and is then made again.
        first = len(PROVIDER.calls) + 1
        PROVIDER.fail = lambda call: ("Unavailable", 503) if (call.number - first) % 2 == 0 else None
        self.aws("down", "small")
        self.assert_nothing_left()
        self.assertGreater(len(PROVIDER.calls) - first, 60)

    def test_answers_to_down_are_lost(self):
        self.up(SMALL)
        PROVIDER.lose = {(name, number) for name in ("TerminateInstances", "DescribeSubnets", "DeleteSubnet", "DeleteVpc",
                                                     "GetCallerIdentity") for number in (1, 2)}
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_an_error_of_one_region_does_not_keep_machines_of_another(self):
        self.up(LARGE)
        for operation in ("DescribeInstances", "DescribeSubnets"):
            PROVIDER.fail = lambda call, failing=operation: ("UnauthorizedOperation", 403) if (
                call.operation == failing and call.region == "eu-central-1") else None
            said = self.aws("down", "large", code=1)
            self.assertIn("left: eu-central-1: An error", said)
            self.assertIn("eu-central-1: instance i-", said)
            self.assertIn("again: scripts/aws down large", said)
            self.assertEqual(PROVIDER.machines("eu-west-1"), [])
        # Until the other region's are gone, which is longer than a call is repeated.
        PROVIDER.reset()
        shutil.rmtree(os.path.join(self.folder, "state"))
        self.up(LARGE)
        PROVIDER.fail = lambda call: ("Unavailable", 503) if (
            call.operation == "TerminateInstances" and call.region == "eu-central-1" and
            PROVIDER.machines("eu-west-1")) else None
        self.aws("down", "large")
        self.assert_nothing_left()

    def test_credentials_that_expire_during_up(self):
        # At the third machine.
        PROVIDER.errors = {("RunInstances", 3): ("ExpiredToken", 400)}
        PROVIDER.fail = lambda call: ("ExpiredToken", 400) if any(
            call.operation == "RunInstances" and call.parameters["ClientToken"].endswith("-crowd")
            for call in PROVIDER.calls) else None
        said = self.up(SMALL, code=1)
        made = [machine["InstanceId"] for machine in PROVIDER.machines("eu-central-1")]
        self.assertEqual(len(made), 2)
        for identifier in made:
            self.assertIn(f"eu-central-1: instance {identifier}", said)
        self.assertIn("again: scripts/aws down small", said)
        PROVIDER.errors, PROVIDER.fail = {}, lambda call: None
        self.aws("down", "small")
        self.assert_nothing_left()


class InterruptTest(Test):
    """Whatever the machines do, an interruption takes everything down."""

    def run_interrupted(self, number, does):
        asked = os.path.join(self.folder, "asked")
        self.ssh('case "$*" in *" true") exit 0 ;; *"rm -rf programs"* | *mkdir*) cat >/dev/null; exit 0 ;; esac\n' +
                 does.format(asked=asked))
        for name in ("shoal/shoal", "shoald/shoald"):
            self.write("programs/" + name, "")

        def meanwhile(process):
            while not os.path.exists(asked) and process.is_alive():
                time.sleep(0.02)
            os.kill(process.pid, number)

        said = self.aws("run", self.write("experiment", SMALL), "--budget-usd", 100, "--programs",
                        os.path.join(self.folder, "programs"), "--out", os.path.join(self.folder, "out"),
                        meanwhile=meanwhile, code=130)
        self.assertIn("taking everything down: KeyboardInterrupt", said)
        self.assert_nothing_left()
        os.remove(asked)

    JOB = ': >{asked}; echo; echo building'
    SILENT = ': >{asked}; exec sleep 100000'

    def test_a_job_that_never_ends(self):
        self.run_interrupted(signal.SIGINT, self.JOB)

    def test_a_connection_that_never_ends(self):
        self.run_interrupted(signal.SIGINT, self.SILENT)

    def test_terminated(self):
        self.run_interrupted(signal.SIGTERM, self.SILENT)

    def test_the_terminal_is_gone(self):
        self.run_interrupted(signal.SIGHUP, self.JOB)

    def test_the_first_failure_stops_the_others(self):
        there = remote.Remote(self.folder, [], {})

        def do(machine):
            all_run.wait()
            if machine == "fails":
                raise aws.Failed("this one")
            try:
                there._pause(machine, 30)
                ends.put("went on")
            except aws.Failed:
                ends.put("stopped")

        ends, all_run = queue.Queue(), threading.Barrier(3)
        with self.assertRaisesRegex(aws.Failed, "this one"):
            there.each(["waits", "fails", "waits too"], do)
        self.assertEqual([ends.get(timeout=300) for _ in range(2)], ["stopped", "stopped"])
        self.assertEqual(there.each(["a", "b"], str.upper), ["A", "B"])


class SkippedTest(Test):
    """What cannot run here says so; what fails for another reason fails."""

    def namespaces(self, words):
        self.write("bin/ip", f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
        os.chmod(os.path.join(self.folder, "bin/ip"), 0o755)
        xml = os.path.join(self.folder, "test.xml")
        done = subprocess.run([os.path.join(HERE, "python_test.sh"), "namespaces_test"], stderr=subprocess.PIPE, check=False, env={
            **os.environ, "PATH": os.path.join(self.folder, "bin") + ":" + os.environ["PATH"], "XML_OUTPUT_FILE": xml,
            "TEST_TMPDIR": self.folder, "SHOAL_BIN": "/nowhere"})
        with open(xml, encoding="utf-8") if os.path.exists(xml) else io.StringIO() as file:
            return done.returncode, file.read()

    def test_namespaces_that_are_not_permitted(self):
        for words in ("mount --make-shared /run/netns failed: Operation not permitted",
                      'Cannot open network namespace "x": Permission denied'):
            code, xml = self.namespaces(words)
            self.assertEqual(code, 0)
            self.assertRegex(xml, r'skipped="1".*<skipped message="an experiment in network namespaces: ip ')

    def test_namespaces_that_fail(self):
        code, xml = self.namespaces("RTNETLINK answers: Operation not supported")
        self.assertNotEqual(code, 0)
        self.assertEqual(xml, "")


class FaultTest(Test):
    def test_calls_that_are_throttled_are_made_again(self):
        PROVIDER.errors = {(name, 1): ("RequestLimitExceeded", 503) for name in (
            "CreateVpc", "CreateSubnet", "RunInstances", "DescribeInstances", "DeleteSubnet", "DescribeVpcs")}
        self.up(SMALL)
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_a_lost_answer_makes_nothing_twice(self):
        self.up(SMALL)
        whole = len(PROVIDER.left(REGIONS))
        made = {call.operation for call in PROVIDER.calls if call.operation.startswith(("Create", "Run", "Auth", "Att"))}
        shutil.rmtree(os.path.join(self.folder, "state"))
        PROVIDER.reset()
        PROVIDER.lose = {(name, 1) for name in made}
        self.up(SMALL)
        self.assertEqual(len(PROVIDER.left(REGIONS)), whole)
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_an_error_inside_the_provider_leaves_open_whether_it_took_place(self):
        PROVIDER.errors = {("CreateVpc", 1): ("InternalError", 500), ("RunInstances", 2): ("Unavailable", 503)}
        self.up(SMALL)
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_what_shows_itself_late_is_removed_too(self):
        # The answer is lost, and then the first search does not find what was made: there are two.
        PROVIDER.lose = {("CreateVpc", 1)}
        PROVIDER.blind["DescribeVpcs"] = 1
        self.up(SMALL)
        found = PROVIDER.moto("eu-central-1").describe_vpcs()["Vpcs"]
        self.assertEqual(len([vpc for vpc in found if not vpc["IsDefault"]]), 2)
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_machines_are_started_once(self):
        # The answer is lost, and the search finds nothing yet: the same call, with its token, starts no others.
        PROVIDER.lose = {("RunInstances", 1)}
        PROVIDER.blind["DescribeInstances"] = 1
        self.up(SMALL)
        self.assertEqual(len([call for call in PROVIDER.calls if call.operation == "RunInstances"]), 4)
        self.assertEqual(len(PROVIDER.machines("eu-central-1")), 3)
        self.aws("down", "small")
        self.assert_nothing_left()

    def test_down_looks_again_for_what_an_interrupted_call_made(self):
        self.up(SMALL, kill_at=2)
        [interrupted] = [call.operation for call in PROVIDER.calls[1:]]
        self.assertEqual(interrupted, "CreateVpc")
        # Both passes of a `down` that does not wait would be blind.
        PROVIDER.blind["DescribeVpcs"] = 2
        self.aws("down", "small", "--settle-s", 8)
        self.assert_nothing_left()

    def test_what_is_refused_is_said_and_everything_removed(self):
        for name, code, status in (("RunInstances", "InsufficientInstanceCapacity", 500),
                                   ("RunInstances", "VcpuLimitExceeded", 400), ("CreateVpc", "VpcLimitExceeded", 400),
                                   ("CreateSecurityGroup", "UnauthorizedOperation", 403)):
            with self.subTest(code=code):
                PROVIDER.reset()
                shutil.rmtree(os.path.join(self.folder, "state"), ignore_errors=True)
                PROVIDER.errors = {(name, 2 if name == "RunInstances" else 1): (code, status)}
                said = self.up(SMALL, code=1)
                self.assertIn(code, said)
                # It is known that this made nothing.
                self.assertNotIn("a call was interrupted", said)
                self.assert_nothing_left()

    def test_machines_that_end_instead_of_starting(self):
        PROVIDER.broken = True
        said = self.up(SMALL, code=1)
        self.assertRegex(said, r"is terminated")
        self.assert_nothing_left()

    def test_a_host_with_another_key_gets_no_command(self):
        self.ssh("echo 'Host key verification failed.' >&2\nexit 255")
        said = self.up(SMALL, code=1)
        self.assertIn("another host answers", said)
        self.assert_nothing_left()

    def test_with_keep_a_failure_leaves_what_there_is(self):
        PROVIDER.errors = {("RunInstances", 2): ("InsufficientInstanceCapacity", 500)}
        self.aws("up", self.write("experiment", SMALL), "--budget-usd", 100, "--keep", code=1)
        self.assertNotEqual(PROVIDER.left(REGIONS), [])
        self.aws("down", "small")
        self.assert_nothing_left()


class UsageTest(Test):
    def test_the_upper_cost_is_refused_above_the_budget(self):
        # (60 + 15) minutes of 2 machines of 0.25 and one more for the crowd, 3 disks, addresses, 2 GiB each.
        cost = 1.25 * 3 * 0.25 + 60 * 0.15 * 1.25 / 730 + 3 * 1.25 * 0.005 + 3 * 2 * 0.15
        self.assertAlmostEqual(experiment.Experiment(SMALL).upper_cost_usd(), cost, delta=0.01)
        self.assertGreaterEqual(experiment.Experiment(SMALL).upper_cost_usd(), cost)
        path = self.write("experiment", SMALL)
        for command in ("up", "run"):
            said = self.aws(command, path, "--budget-usd", 1.8, code=4)
            self.assertIn("1.88 USD are more than --budget-usd 1.80", said)
            self.assertIn("protects nobody", said)
            self.aws(command, path, code=2)
            for usd in ("nan", "inf", "0", "-1"):
                self.aws(command, path, f"--budget-usd={usd}", code=2)
        self.assertEqual(PROVIDER.calls, [])

    def test_programs_that_are_not_there_are_said(self):
        for name in ("shoal/shoal", "shoald/shoald"):
            self.write("programs/" + name, "")
        said = self.aws("run", self.write("experiment", MANY), "--budget-usd", 100, "--programs",
                        os.path.join(self.folder, "programs"), code=2)
        self.assertIn("programs/shoald/machines/shoald-machines", said)
        self.assertEqual(PROVIDER.calls, [])

    def test_an_operator_who_is_nowhere_on_the_internet_is_refused(self):
        for address in ("198.51.100.7/32", "192.0.2.0/24", "203.0.113.1/32", "10.0.0.1/32", "127.0.0.1/32"):
            said = self.up(SMALL.replace(OPERATOR, address), code=2)
            self.assertIn("no address of the internet", said)
        self.assertEqual(PROVIDER.calls, [])

    def test_without_credentials_nothing_begins(self):
        PROVIDER.fail = lambda call: ("InvalidClientTokenId", 403)
        self.up(SMALL, code=1)
        self.assertEqual(self.operations(), ["GetCallerIdentity"])
        self.assertFalse(os.path.exists(os.path.join(self.folder, "state/small/journal.json")))

    def test_a_damaged_file_is_said(self):
        self.up(SMALL)
        for text in ("", "[]", '{"name": '):
            self.write("state/damaged/journal.json", text)
            said = self.aws("list")
            self.assertIn("damaged/journal.json is damaged", said)
            self.assertIn("small\t", self.printed)
            self.assertIn("is damaged", self.aws("down", "damaged", code=2))

    def test_budgets_of_the_examples_are_enough(self):
        one = experiment.read(os.path.join(ROOT, "configs/aws.textproto"))
        with open(os.path.join(ROOT, "docs/aws.md"), encoding="utf-8") as file:
            texts = [file.read(), *main._EXAMPLES.values()]
        budgets = [float(usd) for text in texts for usd in re.findall(r"--budget-usd (\S+)", text) if usd[0].isdigit()]
        self.assertGreater(len(budgets), 4)
        self.assertLessEqual(one.upper_cost_usd(), min(budgets))

    def test_wrong_files_are_refused_with_the_reason(self):
        for change, words in (
                (("paid_minutes", "paid_hours"), 'no field named "paid_hours"'),
                (("60", '"60"'), "2:|expected|integer"),
                (('"small"', '"Small!"'), "name: 1 to 24"),
                (("carol", "alice"), "two have one name"),
                (("carol", "crowd"), "name of the crowd"),
                (('name: "carol"', ""), "is no name"),
                (("eu-central-1a", "eu-central-1"), "an availability zone"),
                (("c7a.xlarge\" }", "\" }"), "instance_type"),
                (("0.25", "0"), "prices: none for c7a.xlarge"),
                (("0.25", "inf"), "prices: none for c7a.xlarge"),
                (("0.25", "nan"), "prices: none for c7a.xlarge"),
                (("queries: 8", ""), "at least one number"),
                (("rounds {", "study { name: \"x\" } rounds {"), "along with"),
                (("rounds { records: 100 queries: 8 }", "study { name: \"queries\" }"), "parties: a study runs"),
                (("11.22.33.44/32", "0.0.0.0/0"), "256 addresses"),
                (("11.22.33.44/32", "11.22.33.45/30"), "has host bits"),
                (("traffic_gib: 2", ""), "traffic_gib"),
                (("records: 100", "records: 1000000000"), "records: values of 256 MiB"),
                (("records: 100", "records: 262145 value_bytes: 1024"), "records: values of 256 MiB"),
                (("paid_minutes: 60", "paid_minutes: 5"), "paid_minutes"),
                (('"carol"', '"carol" machines: 65'), "carol: machines: 64 at most"),
        ):
            with self.subTest(change=change):
                text = SMALL.replace(*change)
                self.assertNotEqual(text, SMALL)
                with self.assertRaisesRegex(experiment.Wrong, words):
                    experiment.Experiment(text)
        eight = "".join(f'parties {{ name: "p{i}" zone: "eu-central-1a" instance_type: "c7a.xlarge" }}' for i in range(7))
        with self.assertRaisesRegex(experiment.Wrong, "7 parties of one machine"):
            experiment.Experiment('name: "x"' + eight + REST)

    def test_the_sample_is_one(self):
        with open(os.path.join(ROOT, "configs/aws.textproto"), encoding="utf-8") as file:
            experiment.Experiment(file.read())

    def test_help_has_examples(self):
        for command in ("plan", "run", "up", "collect", "down", "list"):
            with contextlib.redirect_stdout(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
                main.main([command, "--help"])
            self.assertEqual(end.exception.code, 0)
            self.assertIn(f"examples:\n  scripts/aws {command}", said.getvalue())

    def test_one_command_at_a_time(self):
        book = journal.Journal("small", os.path.join(self.folder, "state"), lambda: {
            "name": "small", "id": "abc", "regions": ["r"], "begun": "today", "down": False})
        said = self.aws("down", "small", code=2)
        self.aws("list")
        self.assertIn("small\tabc\tr\ttoday\t0 machines reached", self.printed)
        book.close()
        self.assertIn("another scripts/aws is at work", said)

    def test_a_journal_is_whole_after_any_step(self):
        folder = os.path.join(self.folder, "state")
        book = journal.Journal("x", folder, lambda: {"name": "x"})
        book.begin("a", "r", "vpc")
        self.assertGreater(book.begun_last_s(), 0)
        book.close()
        book = journal.Journal("x", folder)
        self.assertNotIn("result", book.step("a"))
        book.end("a", ["vpc-1"])
        book.close()
        with open(os.path.join(folder, "x/journal.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["steps"]["a"]["result"], ["vpc-1"])
        with self.assertRaises(experiment.Wrong):
            journal.Journal("../x", folder)

    def test_the_page_has_every_permission_that_is_needed(self):
        # What is called is also allowed with its conditions: the recorder refuses what the policy does not allow.
        allowed = {action.removeprefix("ec2:") for action in provider_module.documented_policy().actions()}
        plan = aws.Plan("many", io.StringIO())
        infrastructure.Up(plan, experiment.Experiment(MANY), "key").run()
        infrastructure.Down(plan, REGIONS).run()
        rare = {"DeleteVolume", "DeleteNetworkInterface", "CreateTags"}
        self.assertEqual(allowed, set(plan.operations) | rare)

    def test_tests_and_program_have_the_same_libraries(self):
        def versions(path):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                return dict(re.findall(r"^([\w-]+)==(\S+)", file.read(), re.M))
        program, tests = versions("scripts/cloud/requirements.txt"), versions("scripts/requirements.txt")
        for name in ("boto3", "protobuf"):
            self.assertEqual(program[name], tests[name])



class TerminalTest(Test):
    """What others say is shown to people as text, and makes no line, field or sequence of its own."""

    HOSTILE = "a\x7f\u009b31m\u202e\u200b\nsmall\tdown"

    def test_tags_of_others_and_errors_move_no_cursor(self):
        PROVIDER.moto("eu-central-1").create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": [
            {"Key": "shoal-experiment", "Value": "x"}, {"Key": "shoal-name", "Value": self.HOSTILE}]}])
        said = self.aws("list", "--region", "eu-central-1")
        [line] = self.printed.splitlines()
        self.assertEqual(line.split("\t")[0], r"a\x7f\xc2\x9b31m\xe2\x80\xae\xe2\x80\x8b\nsmall\tdown")
        self.assertEqual(len(line.split("\t")), 5)
        self.assertTrue(said.replace("\n", "").isprintable() or not said)
        PROVIDER.reset()
        PROVIDER.fail = lambda call: ("Refused\u009b31m\u202e", 403)
        said = self.up(SMALL, code=1)
        self.assertIn(r"Refused\xc2\x9b31m\xe2\x80\xae", said)
        self.assertTrue(said.replace("\n", "").isprintable(), said)

    def test_bytes_that_are_no_text(self):
        self.assertEqual(aws.printable("a\tb\n\x7f\udcff\ud800"), r"a" + "\tb\n" + r"\x7f\xff\x3f")
        self.assertEqual(aws.printable("Grüße 漢字"), "Grüße 漢字")


class PermissionsTest(Test):
    """The policy of docs/aws.md, as permissions.py judges, over calls that scripts/aws does not make.

    That it allows those which are made is shown by all other tests, as the recorder asks it first.
    """

    REGION = "eu-central-1"
    MINE = [{"Key": key, "Value": value} for key, value in aws.tags_of("mine", "mine", "step").items()]

    def setUp(self):
        super().setUp()
        # Of somebody else in the same account, without a tag of ours.
        self.others = PROVIDER.moto(self.REGION)
        self.holder = PROVIDER.holder(self.REGION)
        self.vpc = self.others.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
        self.subnet = self.others.create_subnet(VpcId=self.vpc, CidrBlock="10.1.0.0/24")["Subnet"]["SubnetId"]
        self.group = self.others.create_security_group(GroupName="theirs", Description="theirs", VpcId=self.vpc)["GroupId"]
        [machine] = self.others.run_instances(ImageId=provider_module.IMAGE, MinCount=1, MaxCount=1)["Instances"]
        self.machine = machine["InstanceId"]

    def tagged(self, *kinds):
        return [{"ResourceType": kind, "Tags": self.MINE} for kind in kinds]

    def refused(self, call, *arguments, **parameters):
        """The action that the policy refuses."""
        with self.assertRaises(botocore.exceptions.ClientError) as refused:
            call(*arguments, **parameters)
        self.assertEqual(aws.code_of(refused.exception), "UnauthorizedOperation", refused.exception)
        return re.search(r"ec2:(\w+)|iam:(\w+)", str(refused.exception))[0]

    def test_a_machine_of_somebody_else_is_neither_tagged_nor_ended(self):
        self.assertEqual(self.refused(self.holder.create_tags, Resources=[self.machine], Tags=self.MINE), "ec2:CreateTags")
        self.assertEqual(self.refused(self.holder.terminate_instances, InstanceIds=[self.machine]), "ec2:TerminateInstances")
        # Beside one of ours, and by a name that holds ours.
        self.up(SMALL)
        own = [one["InstanceId"] for one in PROVIDER.machines(self.REGION) if one["InstanceId"] != self.machine]
        self.refused(self.holder.terminate_instances, InstanceIds=own + [self.machine])
        self.refused(self.holder.create_tags, Resources=own + [self.machine], Tags=self.MINE)
        self.refused(self.holder.create_tags, Resources=own, Tags=[{"Key": "another", "Value": "tag"}])
        self.refused(self.holder.delete_tags, Resources=own, Tags=self.MINE)
        self.assertEqual({one["InstanceId"] for one in PROVIDER.machines(self.REGION)}, {self.machine, *own})
        self.holder.terminate_instances(InstanceIds=own)

    def test_nothing_of_somebody_else_is_read_used_or_changed(self):
        own = self.holder.create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=self.tagged("vpc"))["Vpc"]["VpcId"]
        gateway = self.holder.create_internet_gateway(TagSpecifications=self.tagged("internet-gateway"))[
            "InternetGateway"]["InternetGatewayId"]
        table = self.holder.create_route_table(VpcId=own, TagSpecifications=self.tagged("route-table"))["RouteTable"]["RouteTableId"]
        rule = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "11.22.33.44/32"}]}]
        tagged = self.tagged
        refusals = {
            self.refused(self.holder.get_console_output, InstanceId=self.machine): "its console",
            self.refused(self.holder.create_subnet, VpcId=self.vpc, CidrBlock="10.1.9.0/24", TagSpecifications=tagged("subnet")):
                "a subnet of ours in their network",
            self.refused(self.holder.create_security_group, VpcId=self.vpc, GroupName="x", Description="x",
                         TagSpecifications=tagged("security-group")): "a group in it",
            self.refused(self.holder.create_route_table, VpcId=self.vpc, TagSpecifications=tagged("route-table")): "routes in it",
            self.refused(self.holder.attach_internet_gateway, InternetGatewayId=gateway, VpcId=self.vpc): "a way into it",
            self.refused(self.holder.associate_route_table, RouteTableId=table, SubnetId=self.subnet): "our routes for their subnet",
            self.refused(self.holder.authorize_security_group_ingress, GroupId=self.group, IpPermissions=rule,
                         TagSpecifications=tagged("security-group-rule")): "a hole in their group",
            self.refused(self.holder.authorize_security_group_egress, GroupId=self.group, IpPermissions=rule): "and out",
            self.refused(self.holder.revoke_security_group_egress, GroupId=self.group, IpPermissions=rule): "their rules",
            self.refused(self.holder.delete_security_group, GroupId=self.group): "their group",
            self.refused(self.holder.delete_vpc, VpcId=self.vpc): "their network",
        }
        self.assertEqual(set(refusals), {"ec2:" + name for name in (
            "GetConsoleOutput", "CreateSubnet", "CreateSecurityGroup", "CreateRouteTable", "AttachInternetGateway",
            "AssociateRouteTable", "AuthorizeSecurityGroupIngress", "AuthorizeSecurityGroupEgress", "RevokeSecurityGroupEgress",
            "DeleteSecurityGroup", "DeleteVpc")})

    def test_machines_use_nothing_of_somebody_else(self):
        everything = self.tagged("instance", "volume", "network-interface")
        own = self.holder.create_vpc(CidrBlock="10.2.0.0/16", TagSpecifications=self.tagged("vpc"))["Vpc"]["VpcId"]
        subnet = self.holder.create_subnet(VpcId=own, CidrBlock="10.2.0.0/24", TagSpecifications=self.tagged("subnet"))[
            "Subnet"]["SubnetId"]
        image = self.others.create_image(InstanceId=self.machine, Name="private")["ImageId"]
        good = {"ImageId": provider_module.IMAGE, "MinCount": 1, "MaxCount": 1, "SubnetId": subnet, "TagSpecifications": everything}
        for change in ({"SubnetId": self.subnet}, {"SecurityGroupIds": [self.group]}, {"ImageId": image},
                       {"IamInstanceProfile": {"Name": "administrator"}}, {"TagSpecifications": self.tagged("instance")},
                       {"BlockDeviceMappings": [{"DeviceName": "/dev/sdb", "Ebs": {"SnapshotId": "snap-0123456789abcdef0"}}]}):
            with self.subTest(change=change):
                self.refused(self.holder.run_instances, **{**good, **change})
        # The policy does not refuse `good`: another rule of the recorder does.
        with self.assertRaisesRegex(botocore.exceptions.ClientError, "Rule"):
            self.holder.run_instances(**good)

    def test_keys_of_the_request_give_no_right_to_things_that_are_there(self):
        """Whichever contexts the provider puts the tags of a request into."""
        policy = provider_module.documented_policy()
        tags = {"TagSpecification.1.ResourceType": "subnet", "TagSpecification.1.Tag.1.Key": "shoal-experiment",
                "TagSpecification.1.Tag.1.Value": "mine"}
        for operation, parameters in (
                ("CreateSubnet", {"VpcId": "vpc-1"}), ("CreateRouteTable", {"VpcId": "vpc-1"}), ("RunInstances", {"SubnetId": "subnet-1"}),
                ("RunInstances", {"SecurityGroupId.1": "sg-1"}), ("RunInstances", {"Placement.GroupName": "theirs"}),
                ("RunInstances", {"NetworkInterface.1.SubnetId": "subnet-1"}), ("AuthorizeSecurityGroupIngress", {"GroupId": "sg-1"}),
                ("AuthorizeSecurityGroupEgress", {"GroupId": "sg-1"}), ("CreateTags", {"ResourceId.1": "i-1"}),
                ("AttachInternetGateway", {"VpcId": "vpc-1"}), ("TerminateInstances", {"InstanceId.1": "i-1"}),
                ("DeleteVolume", {"VolumeId": "vol-1"}), ("CreateRoute", {"RouteTableId": "rtb-1"})):
            call = provider_module.Call(1, self.REGION, "ec2", operation, {**tags, **parameters})
            asked = permissions.questions(call, "1", lambda kind, identifier: {"tags": {}, "public": False}, everywhere=True)
            there = [one for one in asked if not one.resource.endswith("/*")]
            self.assertEqual(len(there), 1, operation)
            self.assertFalse(policy.allows(there[0]), there[0])

    def test_the_evaluator_judges_as_the_documents_say(self):
        def policy(**statement):
            return permissions.Policy(json.dumps({"Version": "2012-10-17", "Statement": [
                {"Effect": "Allow", "Action": "ec2:Create*", "Resource": "*", **statement}]}))

        def allows(judge, action="ec2:CreateTags", resource="arn:aws:ec2:r:1:instance/i-1", **context):
            return judge.allows(permissions.Question(action, resource, {name.replace("__", ":"): text for name, text in context.items()}))

        self.assertTrue(allows(policy()))
        self.assertTrue(allows(policy(), action="EC2:createtags"))
        self.assertFalse(allows(policy(), action="ec2:DeleteTags"))
        self.assertTrue(allows(policy(Resource="arn:aws:ec2:*:*:instance/*")))
        self.assertFalse(allows(policy(Resource="arn:aws:ec2:*:*:volume/*")))
        on_creation = policy(Condition={"StringEquals": {"ec2:CreateAction": ["RunInstances", "CreateVpc"]}})
        self.assertTrue(allows(on_creation, ec2__CreateAction="CreateVpc"))
        self.assertFalse(allows(on_creation, ec2__CreateAction="CreateVolume"))
        self.assertFalse(allows(on_creation))
        self.assertTrue(allows(policy(Condition={"Null": {"aws:tag": "true"}})))
        self.assertFalse(allows(policy(Condition={"Null": {"aws:tag": "false"}})))
        self.assertTrue(allows(policy(Condition={"Null": {"aws:tag": "false"}}), aws__tag=""))
        self.assertTrue(allows(policy(Condition={"Bool": {"ec2:Public": "true"}}), ec2__Public="true"))
        self.assertFalse(allows(policy(Condition={"Bool": {"ec2:Public": "true"}}), ec2__Public="false"))
        self.assertFalse(allows(policy(Effect="Deny")))
        for unknown in ({"NotAction": "x"}, {"Effect": "Maybe"}, {"Condition": {"StringLike": {"a": "b"}}}):
            with self.assertRaises(permissions.Unknown):
                allows(policy(**unknown))


class HomeTest(unittest.TestCase):
    """What comes home is looked at here, whatever a machine says of it."""

    REPORT = {"answers_compared_with_table": 1, "answers_correct": 8, "answers_wrong": 0, "answers_failed": 0,
              "keys_failed": 0, "devices_lost": 0, "round": 3, "answer_bytes": 80, "latency_seconds_p50": 1.0,
              "latency_seconds_p99": 2.0, "bytes_sent": 10, "bytes_received": 20, "peak_memory_bytes": 30}
    STAGE = {"party": 1, "stage": "noise", "noise_queries": 5, "seconds": 0.5, "cpu_seconds": 0.25, "bytes_in": 0}

    def round(self, repetition=1, **changes):
        return json.dumps({"row": {"queries": 8, "records": 100, "repetition": repetition},
                           "report": {**self.REPORT, **changes}, "status": {"rounds": [{
                               "round": 3, "offline_ms": 1500, "online_ms": 250, "stages": [self.STAGE]}]}}).encode()

    def collect(self, files, out=None, whole=False):
        """Collects these files of the crowd's machine; returns the folder. Two rounds were asked for."""
        class Crowd:
            group = type("Group", (), {"name": "crowd", "machines": 1})
            __str__ = lambda self: "crowd"  # noqa: E731

        class There:
            @staticmethod
            def run(_, command, **_options):
                if "find . -type f" in command:
                    return "\n".join(files).encode()
                return files.get(command[len("cat results/"):], b"a log")

        one = type("One", (), {"crowd": type("Group", (), {"running": [Crowd()]}), "rounds": type(
            "Asked", (), {"queries": [8], "repetitions": 2})})
        one.groups = [one.crowd]
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder)
        out = out or os.path.join(folder, "out")
        with contextlib.redirect_stderr(io.StringIO()):
            workload.collect(There(), one, out, {"machines": "m", "commit": "c", "date": "2026-11-23T00:00:00Z"}, whole)
        return out

    def points(self, out):
        with open(os.path.join(out, "points.csv"), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_rounds_of_before_are_no_points(self):
        out = self.collect({"round-1.json": self.round(), "round-2.json": self.round(2)})
        self.assertEqual(len(self.points(out)), 2)
        self.assertEqual(len(self.points(self.collect({"round-1.json": self.round()}, out))), 1)

    def test_a_folder_belongs_to_one_experiment(self):
        out = self.collect({"round-1.json": self.round()})
        with self.assertRaisesRegex(experiment.Wrong, "something else"):
            workload.claim(out, "0123456789ab")
        out = os.path.join(out, "new")
        workload.claim(out, "0123456789ab")
        self.collect({"round-1.json": self.round()}, out)
        workload.claim(out, "0123456789ab")
        with self.assertRaisesRegex(experiment.Wrong, "experiment 0123456789ab"):
            workload.claim(out, "0123456789ac")

    def test_after_a_run_exactly_the_rounds_are_there_that_were_asked_for(self):
        first, second = self.round(), self.round(2)
        self.collect({"round-1.json": first, "round-2.json": second}, whole=True)
        for files in ({}, {"round-1.json": first}, {"round-1.json": first, "round-3.json": second},
                      {"round-1.json": first, "round-2.json": second, "round-3.json": second},
                      {"round-1.json": second, "round-2.json": first}):
            with self.subTest(names=sorted(files)), self.assertRaisesRegex(aws.Failed, "asked for"):
                self.collect(files, whole=True)

    def test_a_right_round_becomes_a_point_and_figures(self):
        out = self.collect({"round-1.json": self.round()})
        with open(os.path.join(out, "points.csv"), encoding="utf-8") as file:
            names, values = [line.strip().split(",") for line in file]
        row = dict(zip(names, values))
        self.assertEqual((row["offline_s"], row["online_s"], row["noise_queries"], row["answers_checked"]),
                         ("1.5", "0.25", "5", "8"))
        self.assertTrue(os.path.getsize(os.path.join(out, "rounds.png")))

    def test_wrong_answers_are_no_point(self):
        for changes in ({"answers_wrong": 1}, {"answers_correct": 7}, {"answers_compared_with_table": 0}):
            with self.subTest(changes), self.assertRaises(chain.WrongAnswers):
                self.collect({"round-1.json": self.round(**changes)})

    def test_what_is_no_round_is_said(self):
        for content in (b"", b"{}", b"[]", b"{\"row\": 1}", self.round(round=4)):
            with self.subTest(content), self.assertRaises(aws.Failed):
                self.collect({"round-1.json": content})

    def test_no_file_leaves_the_folder(self):
        out = self.collect({name: b"x" for name in (
            "../above", "/etc/absolute", ".hidden", "a/../../b", "fine/one.svg", "-rf", "a b", "$(touch x)")})
        found = [os.path.relpath(os.path.join(top, name), out) for top, _, names in os.walk(os.path.dirname(out))
                 for name in names]
        self.assertEqual(sorted(found), ["fine/one.svg", "logs/crowd.log"])
