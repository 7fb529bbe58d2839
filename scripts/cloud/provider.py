"""For tests: stands in for the provider. moto answers, behind a recorder that enforces rules which moto lacks.

The recorder knows placement groups, tokens of idempotency, what must be removed before what, tags that must be there,
machines that take a while to start and to end, and lets through what the policy of docs/aws.md allows. It makes faults on demand: refusals, lost answers, things that show
themselves late, and the death of the program under test before or after its n-th call.
"""

import base64
import collections
import http.server
import json
import os
import re
import tempfile
import threading
import urllib.parse
import urllib.request

import boto3

from cloud import permissions

HERE = os.path.dirname(os.path.realpath(__file__))
IMAGE = "ami-0123456789abcdef0"
ACCOUNT = "123456789012"
_MOST_SPREAD = 7

Call = collections.namedtuple("Call", "number region service operation parameters")


class Refused(Exception):
    """The answer to a call that breaks a rule."""

    def __init__(self, code, words="", status=400):
        super().__init__(code)
        self.code, self.words, self.status = code, words, status


def documented_policy():
    """The policy of docs/aws.md."""
    with open(os.path.join(HERE, "../../docs/aws.md"), encoding="utf-8") as file:
        [block] = re.findall(r"^    \{\"Version\":.*?\n(?!    )", file.read(), flags=re.MULTILINE | re.DOTALL)
    return permissions.Policy(block)


def _numbered(parameters, prefix):
    """The values of `prefix`.1, `prefix`.2, .."""
    return [value for name, value in sorted(parameters.items()) if re.fullmatch(re.escape(prefix) + r"\.\d+", name)]


class Provider:
    """A provider at `url`. Set `environment` before the program under test starts."""

    def __init__(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump([{
                "ami_id": IMAGE, "name": "debian-12-amd64-20261101-1", "description": "Debian 12", "owner_id": "136693071363",
                "public": True, "virtualization_type": "hvm", "architecture": "x86_64", "state": "available",
                "platform": "", "image_type": "machine", "hypervisor": "xen", "root_device_name": "/dev/xvda",
                "root_device_type": "ebs", "sriov": "simple", "creation_date": "2026-11-01T00:00:00.000Z"}], file)
        os.environ["MOTO_AMIS_PATH"] = file.name
        # moto reads the variable when it is loaded.
        from moto.server import ThreadedMotoServer
        import logging
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        self._moto_url = "http://{}:{}".format(*self._moto.get_host_and_port())
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer is written in two pieces. The second would wait 40 ms for the first one's delayed acknowledgement.
            disable_nagle_algorithm = True

            def do_POST(self):
                provider._take(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
                            "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                            "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "127.0.0.1"}
        self._lock = threading.RLock()
        self._clients = {}
        self._policy = documented_policy()
        self.reset()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._moto.stop()
        os.remove(os.environ.pop("MOTO_AMIS_PATH"))

    def reset(self):
        """A new, empty account, without faults."""
        with self._lock:
            request = urllib.request.Request(self._moto_url + "/moto-api/reset", data=b"", method="POST")
            urllib.request.urlopen(request, timeout=60).read()
            self.calls = []       # every Call
            self.refused = []     # (operation, code) that a rule refused
            self.errors = {}      # (operation, how many-th) -> code, or (code, status)
            self.fail = lambda call: None  # what such an error is for any call
            self.lose = set()     # (operation, how many-th): takes place, and is not answered
            self.blind = collections.Counter()  # operation -> so many calls find nothing
            self.slow = 0         # so many questions after their states until machines have started, and have ended
            self.broken = False   # machines end instead of starting
            self.kill = None      # called when the call `kill_at` came, before or after it takes place
            self.kill_at = None
            self.kill_before = False
            self.account = ACCOUNT
            self.on_run = lambda machine, user_data: None  # machine: as described
            self.on_end = lambda identifier: None
            self.on_rules = lambda: None  # those of a security group have changed
            self.console = self._plain_console
            self._counts = collections.Counter()
            self._groups = {}     # (region, name) -> {"strategy", "tags", "machines", "zones"}
            self._tokens = {}     # (region, token) -> (parameters, answer)
            self._user_data = {}  # identifier -> text
            self._pending, self._ending = collections.Counter(), collections.Counter()

    def moto(self, region):
        """A client that passes by the recorder."""
        with self._lock:
            if region not in self._clients:
                self._clients[region] = boto3.client(
                    "ec2", region, endpoint_url=self._moto_url, aws_access_key_id="test", aws_secret_access_key="test")
            return self._clients[region]

    def holder(self, region):
        """A client of somebody who has the documented policy: it goes by the recorder."""
        return boto3.client("ec2", region, endpoint_url=self.url, aws_access_key_id="test", aws_secret_access_key="test")

    def left(self, regions):
        """What there is but for the account's defaults."""
        found = []
        for region in regions:
            ec2 = self.moto(region)
            default = {vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"] if vpc["IsDefault"]}
            found += [vpc["VpcId"] for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]]
            found += [machine["InstanceId"] for machine in self.machines(region)]
            found += [subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"] if subnet["VpcId"] not in default]
            found += [group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]
                      if group["GroupName"] != "default"]
            found += [gateway["InternetGatewayId"] for gateway in ec2.describe_internet_gateways()["InternetGateways"]]
            found += [table["RouteTableId"] for table in ec2.describe_route_tables()["RouteTables"]
                      if table["VpcId"] not in default]
            found += [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]]
            found += [card["NetworkInterfaceId"] for card in ec2.describe_network_interfaces()["NetworkInterfaces"]]
        return found + [name for _, name in self._groups]

    def machines(self, region):
        """Machines that have not ended, as described."""
        return [machine for machine in self._described(region) if machine["State"]["Name"] != "terminated"]

    def _in_use(self, region):
        """Machines that still hold what they use: those that are ending do."""
        return [machine for machine in self._described(region)
                if machine["State"]["Name"] != "terminated" or self._ending[region] > 0]

    def _described(self, region):
        return [machine for one in self.moto(region).describe_instances()["Reservations"] for machine in one["Instances"]]

    # One call.

    def _take(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        parameters = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        _, _, region, service, _ = re.search(r"Credential=([^,]*)", handler.headers["Authorization"])[1].split("/")
        operation = parameters["Action"]
        with self._lock:
            call = Call(len(self.calls) + 1, region, service, operation, parameters)
            self.calls.append(call)
            if self.kill and call.number == self.kill_at and self.kill_before:
                self.kill()
                handler.close_connection = True
                return
            try:
                status, content = self._answer(call, body, dict(handler.headers))
            except Refused as refused:
                self.refused.append((operation, refused.code))
                status, content = refused.status, (
                    f"<Response><Errors><Error><Code>{refused.code}</Code><Message>{refused.words or refused.code}"
                    "</Message></Error></Errors><RequestID>r</RequestID></Response>").encode()
            if self.kill and call.number == self.kill_at:
                self.kill()
                handler.close_connection = True
                return
        if (operation, self._counts[operation]) in self.lose:
            handler.close_connection = True
            return
        handler.send_response(status)
        handler.send_header("Content-Type", "text/xml")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _answer(self, call, body, headers):
        operation, parameters = call.operation, call.parameters
        self._counts[operation] += 1
        error = self.errors.get((operation, self._counts[operation])) or self.fail(call)
        if error:
            raise Refused(*((error,) if isinstance(error, str) else (error[0], "", error[1])))
        if self.blind[operation] > 0:
            self.blind[operation] -= 1
            body = urllib.parse.urlencode({**parameters, "Filter.1.Name": "tag:nothing", "Filter.1.Value.1": "x"}).encode()
        if operation == "GetCallerIdentity":
            status, content = self._forward(body, headers)
            return status, content.replace(ACCOUNT.encode(), self.account.encode())
        self._need_permission(call)
        if operation.startswith("Create") and operation != "CreateRoute" or operation == "RunInstances":
            self._need_tags(call)
        if operation.endswith("PlacementGroup") or operation.endswith("PlacementGroups"):
            return 200, getattr(self, "_" + operation)(call)
        rule = getattr(self, "_" + operation, None)
        if rule:
            answer = rule(call)
            if answer:
                return answer
        status, content = self._forward(body, headers)
        after = getattr(self, "_after_" + operation, None)
        return status, after(call, content) if after and status == 200 else content

    def _forward(self, body, headers):
        request = urllib.request.Request(self._moto_url, data=body, method="POST", headers={
            name: value for name, value in headers.items() if name.lower() in ("authorization", "content-type", "x-amz-date")})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    # Rules.

    def _need_permission(self, call):
        p = call.parameters
        if "AssociationId" in p:
            found = [(table["RouteTableId"], one["SubnetId"])
                     for table in self.moto(call.region).describe_route_tables()["RouteTables"]
                     for one in table["Associations"] if one["RouteTableAssociationId"] == p["AssociationId"]]
            if not found:
                return  # it is gone, as moto will say
            p = {**p, "RouteTableId": found[0][0], "SubnetId": found[0][1]}
        for question in permissions.questions(call._replace(parameters=p), self.account,
                                              lambda kind, identifier: self._described_thing(call.region, kind, identifier)):
            if not self._policy.allows(question):
                raise Refused("UnauthorizedOperation", f"{question.action} at {question.resource}", 403)

    def _described_thing(self, region, kind, identifier):
        if kind == "placement-group":
            return {"tags": self._groups.get((region, identifier), {"tags": {}})["tags"]}
        found = self.moto(region).describe_tags(Filters=[{"Name": "resource-id", "Values": [identifier]}])["Tags"]
        thing = {"tags": {tag["Key"]: tag["Value"] for tag in found}}
        if kind == "image":
            thing["public"] = self.moto(region).describe_images(ImageIds=[identifier])["Images"][0]["Public"]
        return thing

    def _need_tags(self, call):
        parameters = call.parameters
        tagged = {}
        for name, kind in parameters.items():
            found = re.fullmatch(r"TagSpecification\.(\d+)\.ResourceType", name)
            if found:
                prefix = f"TagSpecification.{found[1]}.Tag"
                tagged[kind] = {parameters[f"{prefix}.{i}.Key"]: parameters[f"{prefix}.{i}.Value"]
                                for i in range(1, 51) if f"{prefix}.{i}.Key" in parameters}
        wanted = {"RunInstances": ("instance", "volume", "network-interface")}.get(
            call.operation, (re.sub(r"(?<!^)([A-Z])", r"-\1", call.operation[len("Create"):]).lower(),))
        for kind in wanted:
            if not {"shoal-experiment", "shoal-name", "shoal-step", "Name"} <= set(tagged.get(kind, ())):
                raise Refused("Rule.Untagged", f"{call.operation}: {kind} lacks tags")

    def _RunInstances(self, call):
        p = call.parameters
        user_data = base64.b64decode(p.get("UserData", "")).decode()
        token = p.get("ClientToken")
        if not token or len(token) > 64:
            raise Refused("Rule.NoToken")
        if p.get("InstanceInitiatedShutdownBehavior") != "terminate" or "poweroff" not in user_data:
            raise Refused("Rule.NeverEnds")
        if not 0 <= user_data.find("enable --now shoal-end.timer") < user_data.find("apt-get"):
            raise Refused("Rule.NeverEnds", "something that may fail comes before the timer")
        if len(user_data) > 16384 or "PRIVATE KEY" in user_data:
            raise Refused("Rule.UserData")
        if re.match(r"t\d", p["InstanceType"]) and p.get("CreditSpecification.CpuCredits") != "standard":
            raise Refused("Rule.Credits")
        if p.get("MetadataOptions.HttpTokens") != "required":
            raise Refused("Rule.Metadata")
        if p.get("BlockDeviceMapping.1.Ebs.Encrypted") != "true" or \
                p.get("BlockDeviceMapping.1.Ebs.DeleteOnTermination") != "true":
            raise Refused("Rule.Disk")
        known = self._tokens.get((call.region, token))
        if known:
            if known[0] != {name: value for name, value in p.items() if name != "Action"}:
                raise Refused("IdempotentParameterMismatch")
            return known[1]
        group = self._groups.get((call.region, p.get("Placement.GroupName")))
        if group is None:
            raise Refused("InvalidPlacementGroup.Unknown")
        zone = p["Placement.AvailabilityZone"]
        if group["strategy"] == "spread" and group["zones"][zone] + int(p["MaxCount"]) > _MOST_SPREAD:
            raise Refused("InsufficientInstanceCapacity", "more than seven of a zone", 500)
        if group["strategy"] == "cluster" and set(group["zones"]) - {zone}:
            raise Refused("InvalidParameterValue", "a cluster is in one zone")
        return None

    def _after_RunInstances(self, call, content):
        p = call.parameters
        identifiers = re.findall(rb"<instanceId>(i-[0-9a-f]+)</instanceId>", content)
        group = self._groups[call.region, p["Placement.GroupName"]]
        group["zones"][p["Placement.AvailabilityZone"]] += len(identifiers)
        for identifier in identifiers:
            group["machines"].add(identifier.decode())
            self._user_data[identifier.decode()] = base64.b64decode(p["UserData"]).decode()
        self._tokens[call.region, p["ClientToken"]] = (
            {name: value for name, value in p.items() if name != "Action"}, (200, content))
        self._pending[call.region] = self.slow
        if self.broken:
            self.moto(call.region).terminate_instances(InstanceIds=[one.decode() for one in identifiers])
        else:
            for machine in self.machines(call.region):
                if machine["InstanceId"].encode() in identifiers:
                    self.on_run(machine, self._user_data[machine["InstanceId"]])
        return content

    def _after_DescribeInstances(self, call, content):
        if self._pending[call.region] > 0:
            self._pending[call.region] -= 1
            content = content.replace(b"<code>16</code>", b"<code>0</code>").replace(
                b"<name>running</name>", b"<name>pending</name>")
        if self._ending[call.region] > 0:
            self._ending[call.region] -= 1
            content = content.replace(b"<code>48</code>", b"<code>32</code>").replace(
                b"<name>terminated</name>", b"<name>shutting-down</name>")
        return content

    def _after_TerminateInstances(self, call, content):
        self._ending[call.region] = self.slow
        for identifier in _numbered(call.parameters, "InstanceId"):
            self.on_end(identifier)
        return content

    def _GetConsoleOutput(self, call):
        identifier = call.parameters["InstanceId"]
        text = "Linux version 6.1\n" + self.console(identifier)
        return 200, (f"<GetConsoleOutputResponse><instanceId>{identifier}</instanceId><output>"
                     f"{base64.b64encode(text.encode()).decode()}</output></GetConsoleOutputResponse>").encode()

    def _plain_console(self, identifier):
        """What a first boot would write, with some key."""
        tag = re.search(r"shoal-host-key (\S+) ", self._user_data[identifier])
        return f"shoal-host-key {tag[1]} ssh-ed25519 {'A' * 68}\n"

    def _AuthorizeSecurityGroupIngress(self, call):
        if "0.0.0.0/0" in call.parameters.values():
            raise Refused("Rule.OpenToAll")

    def _after_AuthorizeSecurityGroupIngress(self, _, content):
        self.on_rules()
        return content

    _after_AuthorizeSecurityGroupEgress = _after_AuthorizeSecurityGroupIngress

    def _DeleteSecurityGroup(self, call):
        group = call.parameters["GroupId"]
        if any(group in [one["GroupId"] for card in machine["NetworkInterfaces"] for one in card["Groups"]]
               for machine in self._in_use(call.region)):
            raise Refused("DependencyViolation", "a machine has it")
        for other in self.moto(call.region).describe_security_groups()["SecurityGroups"]:
            named = [pair["GroupId"] for rules in (other["IpPermissions"], other["IpPermissionsEgress"])
                     for rule in rules for pair in rule.get("UserIdGroupPairs", [])]
            if other["GroupId"] != group and group in named:
                raise Refused("DependencyViolation", "a rule names it")

    def _DeleteSubnet(self, call):
        if any(machine["SubnetId"] == call.parameters["SubnetId"] for machine in self._in_use(call.region)):
            raise Refused("DependencyViolation", "a machine is in it")

    def _DetachInternetGateway(self, call):
        if any(machine["VpcId"] == call.parameters["VpcId"] for machine in self._in_use(call.region)):
            raise Refused("DependencyViolation", "a machine has a public address")

    def _DeleteInternetGateway(self, call):
        found = self.moto(call.region).describe_internet_gateways(
            Filters=[{"Name": "internet-gateway-id", "Values": [call.parameters["InternetGatewayId"]]}])
        if any(gateway["Attachments"] for gateway in found["InternetGateways"]):
            raise Refused("DependencyViolation", "it is attached")

    def _DeleteRouteTable(self, call):
        for table in self.moto(call.region).describe_route_tables()["RouteTables"]:
            if table["RouteTableId"] == call.parameters["RouteTableId"] and any(
                    not association["Main"] for association in table["Associations"]):
                raise Refused("DependencyViolation", "a subnet has it")

    def _DeleteVpc(self, call):
        ec2, vpc = self.moto(call.region), call.parameters["VpcId"]
        if any(subnet["VpcId"] == vpc for subnet in ec2.describe_subnets()["Subnets"]) or any(
                group["VpcId"] == vpc and group["GroupName"] != "default"
                for group in ec2.describe_security_groups()["SecurityGroups"]) or any(
                    attachment["VpcId"] == vpc for gateway in ec2.describe_internet_gateways()["InternetGateways"]
                    for attachment in gateway["Attachments"]) or any(
                        table["VpcId"] == vpc and not any(one["Main"] for one in table["Associations"])
                        for table in ec2.describe_route_tables()["RouteTables"]):
            raise Refused("DependencyViolation", "something is in it")

    # Placement groups, which moto lacks.

    def _CreatePlacementGroup(self, call):
        p = call.parameters
        if (call.region, p["GroupName"]) in self._groups:
            raise Refused("InvalidPlacementGroup.Duplicate")
        tags = {p[f"TagSpecification.1.Tag.{i}.Key"]: p[f"TagSpecification.1.Tag.{i}.Value"]
                for i in range(1, 51) if f"TagSpecification.1.Tag.{i}.Key" in p}
        self._groups[call.region, p["GroupName"]] = {
            "strategy": p["Strategy"], "tags": tags, "machines": set(), "zones": collections.Counter()}
        return b"<CreatePlacementGroupResponse><return>true</return></CreatePlacementGroupResponse>"

    def _DescribePlacementGroups(self, call):
        p = call.parameters
        found = [(name, group) for (region, name), group in sorted(self._groups.items()) if region == call.region]
        for i in range(1, 11):
            if f"Filter.{i}.Name" not in p:
                break
            what, values = p[f"Filter.{i}.Name"], _numbered(p, f"Filter.{i}.Value")
            found = [(name, group) for name, group in found if (
                name if what == "group-name" else group["tags"].get(what[len("tag:"):])) in values]
        items = "".join(
            f"<item><groupName>{name}</groupName><state>available</state><strategy>{group['strategy']}</strategy>"
            "<tagSet>" + "".join(f"<item><key>{k}</key><value>{v}</value></item>" for k, v in group["tags"].items()) +
            "</tagSet></item>" for name, group in found)
        return (f"<DescribePlacementGroupsResponse><placementGroupSet>{items}</placementGroupSet>"
                "</DescribePlacementGroupsResponse>").encode()

    def _DeletePlacementGroup(self, call):
        name = call.parameters["GroupName"]
        group = self._groups.get((call.region, name))
        if group is None:
            raise Refused("InvalidPlacementGroup.Unknown")
        if group["machines"] & {machine["InstanceId"] for machine in self._in_use(call.region)}:
            raise Refused("InvalidPlacementGroup.InUse")
        del self._groups[call.region, name]
        return b"<DeletePlacementGroupResponse><return>true</return></DeletePlacementGroupResponse>"
