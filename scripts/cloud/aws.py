"""Calls of the provider's interface: real ones, each step in the journal before it is taken, or printed ones.

`Cloud` and `Plan` have the same methods, so that `plan` follows the very code that `run` and `down` follow:

    call(region, service, operation, **parameters)    one call; its answer
    make(step, region, kind, operation, result, ..)   makes things with their tags, once; their identifiers
    change(step, region, operation, ..)               changes something, once
    wait(what, region, operation, ready, ..)          asks until `ready` finds something in the answer
    find(region, kind)                                everything of this kind that belongs to the experiment
"""

import functools
import json
import re
import sys
import time

import boto3
import botocore
import botocore.config
import botocore.exceptions

# Nothing took place, and the same call works later.
_THROTTLED = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "EC2ThrottledException"}
# Nobody knows whether the call took place.
_UNKNOWN = {"InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable", "500", "502", "503", "504"}
# The same call with the same credentials fails for ever.
_FINAL = {"AccessDenied", "AuthFailure", "Blocked", "ExpiredToken", "InvalidClientTokenId", "OperationNotPermitted",
          "OptInRequired", "PendingVerification", "RequestExpired", "SignatureDoesNotMatch", "UnauthorizedOperation",
          "UnrecognizedClientException"}
_UNREACHED = (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)
# Taken twice, these have the effect of once: they are repeated also when nobody knows whether they took place.
_REPEATED = re.compile(r"(?:Describe|Get|Terminate|Delete|Detach|Disassociate|Revoke)[A-Za-z]+")
FIRST_PAUSE_S = 0.2
# What was just made is not known everywhere at once.
_SETTLES_S = 120
_ATTEMPTS = 8


class Failed(Exception):
    """A call, or what it was to bring about, failed."""


class Late(Failed):
    """What was waited for has not come yet."""


class Kind:
    """A kind of things that an experiment makes: how they are found."""

    def __init__(self, describe, path, identifier, by_identifier):
        self.describe = describe            # the call
        self.path = path                    # of the list in its answer
        self.identifier = identifier        # field of each of them
        self.by_identifier = by_identifier  # name of the filter


KINDS = {
    "instance": Kind("DescribeInstances", ("Reservations", "Instances"), "InstanceId", "instance-id"),
    "placement-group": Kind("DescribePlacementGroups", ("PlacementGroups",), "GroupName", "group-name"),
    "network-interface": Kind(
        "DescribeNetworkInterfaces", ("NetworkInterfaces",), "NetworkInterfaceId", "network-interface-id"),
    "volume": Kind("DescribeVolumes", ("Volumes",), "VolumeId", "volume-id"),
    "security-group": Kind("DescribeSecurityGroups", ("SecurityGroups",), "GroupId", "group-id"),
    "subnet": Kind("DescribeSubnets", ("Subnets",), "SubnetId", "subnet-id"),
    "route-table": Kind("DescribeRouteTables", ("RouteTables",), "RouteTableId", "route-table-id"),
    "internet-gateway": Kind(
        "DescribeInternetGateways", ("InternetGateways",), "InternetGatewayId", "internet-gateway-id"),
    "vpc": Kind("DescribeVpcs", ("Vpcs",), "VpcId", "vpc-id"),
}


def printable(text):
    """Text from the provider, from machines and from files, as a terminal may get it: lines and tabs stay, and \\xHH of their
    bytes is what it would obey, or nobody would see (src/base/printable.h)."""
    return "".join(c if c.isprintable() or c in "\n\t" else
                   "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape" if "\udc80" <= c <= "\udcff" else "replace"))
                   for c in text)


def tell(text):
    """Writes a line to standard error. A terminal that is gone stops nothing: least of all a `down`."""
    try:
        # In one piece, as several threads speak.
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()
    except OSError:
        pass


def say(*words):
    tell(f"{time.strftime('%H:%M:%S')} {' '.join(map(str, words))}")


@functools.lru_cache(maxsize=None)
def _session():
    return boto3.session.Session()


def client(region, service="ec2"):
    # No attempts but ours: one that is repeated after a lost answer would make a thing twice.
    config = botocore.config.Config(
        retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=60, user_agent_extra="shoal")
    return _session().client(service, region_name=region, config=config)


def inside(answer, path):
    things = [answer]
    for name in path:
        things = [inner for thing in things for inner in thing.get(name, [])]
    return things


def tags_of(identifier, name, step):
    """The tags of what a step makes."""
    return {"shoal-experiment": identifier, "shoal-name": name, "shoal-step": step, "Name": f"shoal-{name}-{step}"}


def tag_specifications(tags, kinds):
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": pairs} for kind in kinds]


def _filters(**values):
    return [{"Name": name.replace("__", ":").replace("_", "-"), "Values": values[name]} for name in values]


def tags(thing):
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", thing.get("TagSet", []))}


def passes(error):
    """Whether the same may succeed later."""
    if isinstance(error, botocore.exceptions.ClientError):
        return code_of(error) not in _FINAL
    return isinstance(error, _UNREACHED + (Late,))


class Calls:
    """Real calls."""

    def __init__(self):
        self._clients = {}

    def _once(self, region, service, operation, parameters):
        if (region, service) not in self._clients:
            self._clients[region, service] = client(region, service)
        return getattr(self._clients[region, service], botocore.xform_name(operation))(**parameters)

    def call(self, region, service, operation, **parameters):
        """Raises ClientError for what the provider refuses, BotoCoreError if it cannot be reached, Failed without credentials.
        """
        pause_s = FIRST_PAUSE_S
        repeated = _THROTTLED | _UNKNOWN if _REPEATED.fullmatch(operation) else _THROTTLED
        for attempt in range(_ATTEMPTS):
            try:
                return self._once(region, service, operation, parameters)
            except botocore.exceptions.ClientError as error:
                if code_of(error) not in repeated or attempt == _ATTEMPTS - 1:
                    raise
                say(f"{operation} in {region}: {code_of(error)}: again in {pause_s:.1f} s")
            except _UNREACHED as error:
                if not _REPEATED.fullmatch(operation) or attempt == _ATTEMPTS - 1:
                    raise
                say(f"{operation} in {region}: {error}: again in {pause_s:.1f} s")
            except botocore.exceptions.NoCredentialsError:
                raise Failed("no credentials: see `aws configure`, or AWS_PROFILE") from None
            time.sleep(pause_s)
            pause_s = min(30, pause_s * 2)
        raise AssertionError

    def described(self, region, kind, filters):
        """Things of a kind as the provider describes them, all pages."""
        found, token = [], {}
        while True:
            answer = self.call(region, "ec2", KINDS[kind].describe, Filters=filters, **token)
            found += inside(answer, KINDS[kind].path)
            if not answer.get("NextToken"):
                return found
            token = {"NextToken": answer["NextToken"]}


class Cloud(Calls):
    """Real calls for an experiment, with its journal."""

    def __init__(self, journal):
        super().__init__()
        self._journal = journal
        self.identifier = journal.content["id"]
        self.name = journal.content["name"]

    def make(self, step, region, kind, operation, result, kinds=(), **parameters):
        """Makes a thing of this kind, or takes what the same step made before it was interrupted.

        `result` takes the identifiers, a list, from the answer; `kinds` are further kinds that the call makes.
        """
        there = self._journal.step(step)
        if there and "result" in there:
            return there["result"]
        say(f"{operation}: {step}")
        if there:
            found = self._of_step(step, region, kind)
        else:
            self._journal.begin(step, region, kind)
            found = None
        if not found:
            tags = tag_specifications(tags_of(self.identifier, self.name, step), (kind,) + tuple(kinds))
            found = self._certain(
                step, not there, lambda: result(self.call(region, "ec2", operation, TagSpecifications=tags, **parameters)),
                lambda: self._of_step(step, region, kind), f"{operation} in {region}")
        self._journal.end(step, found)
        return found

    def change(self, step, region, operation, already=(), **parameters):
        """`already`: codes of errors that say that it is so."""
        there = self._journal.step(step)
        if there and "result" in there:
            return

        def take():
            try:
                self.call(region, "ec2", operation, **parameters)
            except botocore.exceptions.ClientError as error:
                if code_of(error) not in already:
                    raise
            return True

        say(f"{operation}: {step}")
        self._journal.begin(step, region, "")
        self._certain(step, not there, take, lambda: None, f"{operation} in {region}")
        self._journal.end(step, True)

    def _certain(self, step, refused_only, take, look, what):
        """What `take` returns; where it is not known whether it took place, `look` tells, or it is taken again.

        A step that was only ever refused (`refused_only`: before this) is forgotten: it made nothing.
        """
        pause_s, last = FIRST_PAUSE_S, None
        until = time.monotonic() + _SETTLES_S
        for _ in range(_ATTEMPTS):
            try:
                return take()
            except botocore.exceptions.ClientError as error:
                last = error
                code = code_of(error)
                unknown = code in _UNKNOWN
                refused_only = refused_only and not unknown
                if not (unknown or code.endswith(".NotFound") and time.monotonic() < until):
                    if refused_only:
                        self._journal.forget(step)
                    raise Failed(f"{what}: {error}") from None
            except _UNREACHED as error:
                last, refused_only = error, False
            say(f"{what}: {last}: looking whether it took place")
            time.sleep(pause_s)
            pause_s = min(15, pause_s * 2)
            found = look()
            if found:
                return found
        raise Failed(f"{what}: {last}")

    def _of_step(self, step, region, kind):
        return [thing[KINDS[kind].identifier] for thing in self.described(
            region, kind, _filters(tag__shoal_experiment=[self.identifier], tag__shoal_step=[step])) if lives(thing)]

    def find(self, region, kind):
        """By the tags, and by the journal: things as the provider describes them. Instances that ended are left out.

        Only what belongs to the experiment: what stands in a filter may be a pattern.
        """
        found = [thing for thing in self.described(region, kind, _filters(tag__shoal_experiment=[self.identifier]))
                 if tags(thing).get("shoal-experiment") == self.identifier]
        field = KINDS[kind].identifier
        others = sorted(set(self._journal.results(region, kind)) - {thing[field] for thing in found})
        if others:
            found += self.described(region, kind, [{"Name": KINDS[kind].by_identifier, "Values": others}])
        if found and not self._journal.content.get("found"):
            self._journal.set(found=True)
        return [thing for thing in found if lives(thing)]

    def gone(self, region, kind, identifiers):
        """They are about to be removed; only a plan needs to be told."""

    def wait(self, what, region, operation, ready, limit_s, planned=None, **parameters):
        """`ready` returns None until it is; it may raise Failed. Raises Late after `limit_s`."""
        del planned
        say(f"waiting: {what}")
        begun, pause_s, said = time.monotonic(), 0.1, 0
        while True:
            try:
                found = ready(self.call(region, "ec2", operation, **parameters))
            except botocore.exceptions.ClientError as error:
                if not (code_of(error).endswith(".NotFound") or code_of(error) in _THROTTLED | _UNKNOWN):
                    raise Failed(f"{what}: {error}") from None
                found = None
            except _UNREACHED as error:
                say(f"{what}: {error}")
                found = None
            if found is not None:
                return found
            passed = time.monotonic() - begun
            if passed > limit_s:
                raise Late(f"{what}: not within {limit_s} s")
            if passed - said > 15:
                said = passed
                say(f"waiting: {what}: {passed:.0f} s")
            time.sleep(pause_s)
            pause_s = min(5, pause_s * 1.5)


def lives(thing):
    return thing.get("State") not in ("deleted", "deleting") and not (
        isinstance(thing.get("State"), dict) and thing["State"].get("Name") == "terminated")


def code_of(error):
    return str(error.response.get("Error", {}).get("Code", ""))


class Plan:
    """Prints calls, in order, and takes names in angle brackets for what they would answer."""

    def __init__(self, name, out=None):
        self.identifier = "<id>"
        self.name = name
        self.operations = []  # names of the calls so far
        self._out = out or sys.stdout
        self._made = {}

    def _print(self, service, region, operation, parameters, until=""):
        self.operations.append(operation)
        print(f"{service} {region} {operation}{' until ' + until if until else ''} "
              f"{json.dumps(parameters, sort_keys=True)}", file=self._out)

    def call(self, region, service, operation, **parameters):
        self._print(service, region, operation, parameters)
        return {"Account": "<account>"}

    def make(self, step, region, kind, operation, result, kinds=(), **parameters):
        del result
        tags = tag_specifications(tags_of(self.identifier, self.name, step), (kind,) + tuple(kinds))
        self._print("ec2", region, operation, {"TagSpecifications": tags, **parameters})
        self._made.setdefault((region, kind), []).append(f"<{step}>")
        return [f"<{step}>"]

    def change(self, step, region, operation, already=(), **parameters):
        del step, already
        self._print("ec2", region, operation, parameters)

    def find(self, region, kind):
        self._print("ec2", region, KINDS[kind].describe, {"Filters": _filters(tag__shoal_experiment=[self.identifier])})
        nested = [{"IpProtocol": "<all>"}]
        return [{KINDS[kind].identifier: name, "IpPermissions": nested, "IpPermissionsEgress": nested,
                 "Attachments": [{"VpcId": vpc} for vpc in self._made.get((region, "vpc"), [])],
                 "Associations": [{"RouteTableAssociationId": "<association>", "Main": False}]}
                for name in self._made.get((region, kind), [])]

    def gone(self, region, kind, identifiers):
        """They would not be found any more."""
        for identifier in identifiers:
            self._made[region, kind].remove(identifier)

    def wait(self, what, region, operation, ready, limit_s, planned=None, **parameters):
        """Returns `planned`."""
        del ready, limit_s
        self._print("ec2", region, operation, parameters, until=what)
        return planned
