"""Reads and checks the file of an experiment (experiment.proto), and computes what it may cost at most."""

import ipaddress
import math
import os
import re
import subprocess

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

HERE = os.path.dirname(os.path.realpath(__file__))

# A file is small; anything larger is not one.
_MOST_BYTES = 1 << 20
# A machine counts its paid time from the moment that it has booted, its owner pays from the start of the call.
BOOT_MINUTES = 15
_HOURS_OF_A_MONTH = 730
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?")
_ZONE = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d)[a-z]")
# The provider refuses an eighth machine of a zone in a placement group that spreads them.
_MOST_SPREAD = 7
# What one job of scripts/party-machines may have.
_MOST_MACHINES = 64
# The table passes through the machine that runs scripts/aws, with what it has besides values.
_MOST_TABLE_BYTES = 256 << 20
_DEFAULTS = {"usd_per_disk_gib_month": 0.15, "usd_per_address_hour": 0.005, "usd_per_traffic_gib": 0.15}


class Wrong(Exception):
    """The file, or the command, is not one that can be followed."""


class Group:
    """The machines of one party, or of the crowd (`number` 0)."""

    def __init__(self, number, text):
        self.number = number
        self.name = text.name if number else "crowd"
        self.zone = text.zone
        self.region = _ZONE.fullmatch(text.zone)[1] if _ZONE.fullmatch(text.zone) else ""
        self.instance_type = text.instance_type
        self.machines = text.machines or 1
        self.disk_gib = text.disk_gib or 20


def message_class(folder, file, name):
    """The class of a message, from the file itself, which imports none."""
    try:
        described = subprocess.run(
            ["protoc", f"--proto_path={folder}", "--descriptor_set_out=/dev/stdout", file],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    except FileNotFoundError:
        raise Wrong("there is no protoc; run: scripts/setup") from None
    except subprocess.CalledProcessError as error:
        raise Wrong(f"{file}: {error.stderr.decode(errors='replace').strip()}") from None
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(described.stdout).file:
        pool.Add(one)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(name))


class Experiment:
    """What a file says, checked. `text` is the file itself."""

    def __init__(self, text):
        """Raises Wrong, with the place in the file where it has one."""
        self.text = text
        message = message_class(HERE, "experiment.proto", "shoal.cloud.Experiment")()
        try:
            text_format.Parse(text, message)
        except text_format.ParseError as error:
            raise Wrong(str(error)) from None
        self.name = message.name
        self.parties = [Group(j, party) for j, party in enumerate(message.parties, 1)]
        self.crowd = Group(0, message.crowd)
        self.groups = self.parties + [self.crowd]
        self.regions = sorted({group.region for group in self.groups})
        self.paid_minutes = message.paid_minutes
        self.traffic_gib = message.traffic_gib
        self.images = {image.region: image.ami for image in message.images}
        self.rounds = message.rounds if message.WhichOneof("workload") == "rounds" else None
        self.study = message.study if message.WhichOneof("workload") == "study" else None
        self._prices = {(price.region, price.instance_type): price.usd_per_hour for price in message.prices}
        self._rates = {name: getattr(message, name) or default for name, default in _DEFAULTS.items()}
        self._check(message)

    def _check(self, message):
        def need(true, words):
            if not true:
                raise Wrong(words)

        need(_NAME.fullmatch(self.name), "name: 1 to 24 lower-case letters, digits and dashes")
        names = [party.name for party in self.parties]
        need(len(set(names)) == len(names), "parties: two have one name")
        need("crowd" not in names, 'parties: "crowd" is the name of the crowd')
        need(message.HasField("crowd"), "crowd: missing: the machine that clients, or the study, run on")
        need(not message.crowd.name, "crowd: has no name of its own")
        for group in self.groups:
            need(_NAME.fullmatch(group.name), f"parties: {group.name!r} is no name")
            need(group.region, f"{group.name}: zone: an availability zone, such as eu-central-1a")
            need(re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", group.instance_type), f"{group.name}: instance_type: missing")
            need(8 <= group.disk_gib <= 16384, f"{group.name}: disk_gib: 8 to 16384")
            need(group.machines <= _MOST_MACHINES, f"{group.name}: machines: {_MOST_MACHINES} at most")
            price = self._prices.get((group.region, group.instance_type), 0)
            need(0 < price < 1000, f"prices: none for {group.instance_type} in {group.region}")
        need(self.crowd.machines == 1, "crowd: machines: one")
        for zone in {group.zone for group in self.groups}:
            alone = [group for group in self.groups if group.zone == zone and group.machines == 1]
            need(len(alone) <= _MOST_SPREAD, f"{zone}: {_MOST_SPREAD} parties of one machine (and the crowd) at most, "
                 "as each gets hardware of its own; put others into another zone")
        need(self.rounds or self.study, "rounds or study: missing: what is to run")
        if self.rounds:
            need(2 <= len(self.parties) <= 8, "parties: 2 to 8")
            need(1 <= self.rounds.records <= 10**9, "rounds: records: 1 to 1000000000")
            need(self.rounds.queries and all(1 <= n <= 1 << 30 for n in self.rounds.queries),
                 f"rounds: queries: at least one number, each of 1 to {1 << 30}")
            need(self.rounds.value_bytes <= 1024, "rounds: value_bytes: 1024 at most")
            need(self.rounds.records * (self.rounds.value_bytes or 4) <= _MOST_TABLE_BYTES,
                 f"rounds: records: values of {_MOST_TABLE_BYTES >> 20} MiB together at most")
            need(self.rounds.keys_per_row <= 4096, "rounds: keys_per_row: 4096 at most")
            need(0 <= self.rounds.epsilon <= 100 and 0 <= self.rounds.delta < 1, "rounds: epsilon, delta: out of bounds")
            need(self.rounds.repetitions <= 100, "rounds: repetitions: 100 at most")
        else:
            need(not self.parties, "parties: a study runs on the crowd's machine alone")
            need(re.fullmatch(r"[a-z0-9-]+", self.study.name), "study: name: missing")
            need(all(re.fullmatch(r"[A-Za-z0-9=.,_ -]+", word) for word in self.study.arguments),
                 "study: arguments: letters, digits and =.,_- only")
        need(10 <= self.paid_minutes <= 7 * 24 * 60, "paid_minutes: 10 to 10080")
        need(1 <= self.traffic_gib <= 10**5, "traffic_gib: 1 to 100000")
        need(all(rate > 0 and math.isfinite(rate) for rate in self._rates.values()), "usd_per_..: above 0")
        need(all(re.fullmatch(r"ami-[0-9a-f]+", ami) for ami in self.images.values()), "images: ami: ami-..")
        try:
            self.operator = ipaddress.IPv4Network(message.operator_cidr)
        except ValueError as error:
            raise Wrong(f"operator_cidr: {error}; for example 198.51.100.7/32") from None
        need(self.operator.prefixlen >= 24, "operator_cidr: 256 addresses (/24) at most")

    def has_large_party(self):
        """Whether a party has several machines, which takes programs of its own."""
        return any(party.machines > 1 for party in self.parties)

    def costs(self):
        """(what, US dollars) for everything that is paid for, at most."""
        hours = (self.paid_minutes + BOOT_MINUTES) / 60
        machines = sum(group.machines for group in self.groups)
        disks = sum(group.machines * group.disk_gib for group in self.groups)
        lines = [(f"{group.name}: {group.machines} x {group.instance_type} in {group.region}",
                  group.machines * hours * self._prices[group.region, group.instance_type]) for group in self.groups]
        return lines + [
            (f"disks: {disks} GiB", disks * self._rates["usd_per_disk_gib_month"] * hours / _HOURS_OF_A_MONTH),
            (f"public addresses: {machines}", machines * hours * self._rates["usd_per_address_hour"]),
            (f"traffic: {machines} x {self.traffic_gib} GiB",
             machines * self.traffic_gib * self._rates["usd_per_traffic_gib"])]

    def upper_cost_usd(self):
        """In whole cents, rounded up."""
        return math.ceil(sum(usd for _, usd in self.costs()) * 100 - 1e-9) / 100


def read(path):
    """The experiment in the file. Raises Wrong."""
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Wrong(f"{path}: {error.strerror}") from None
    try:
        if len(content) > _MOST_BYTES:
            raise Wrong("more than 1 MiB")
        return Experiment(content.decode())
    except UnicodeDecodeError:
        raise Wrong(f"{path}: not UTF-8") from None
    except Wrong as wrong:
        raise Wrong(f"{path}: {wrong}") from None
