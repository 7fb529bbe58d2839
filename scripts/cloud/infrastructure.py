"""Makes an experiment's machines and what they need, and removes all of it.

Each region has a network of its own, each party (and the crowd) a subnet and a security group. Between neighbours of one
region packets take private addresses, and the rules name security groups; between regions they take public ones, and
the rules name these. Nothing else gets in but ssh from the operator.
"""

import os
import re
import time

import botocore.exceptions

from cloud import aws
from cloud.aws import Failed, say

HERE = os.path.dirname(os.path.realpath(__file__))
# Debian's own account (https://wiki.debian.org/Cloud/AmazonEC2Image).
_DEBIAN = "136693071363"
CLIENTS_PORT = 7300
_SSH_PORT = 22
# Where Open MPI listens on the machines of a party of several (scripts/party-machines).
MACHINES_PORTS = (7400, 7419)

# The rules that a security group begins with.
_ALL_OUT = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
_ANYWHERE = {"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}

_START_LIMIT_S = 600
_CONSOLE_LIMIT_S = 900
# Machines that have not ended by then are asked once more.
_END_LIMIT_S = 120
_REMOVE_LIMIT_S = 900


class Machine:
    """A machine that runs."""

    def __init__(self, group, index, identifier, private, public):
        self.group = group
        self.index = index
        self.identifier = identifier
        self.private = private
        self.public = public

    def __str__(self):
        return self.group.name if self.group.machines == 1 else f"{self.group.name}.{self.index}"


def port_of(group):
    """Where a party listens: the first for clients, the others for the party before them."""
    return CLIENTS_PORT + group.number - 1


def callers(experiment):
    """(who connects, to whom) for all neighbours, the crowd included."""
    chain = [experiment.crowd] + experiment.parties
    return list(zip(chain, chain[1:]))


def addresses_for(caller, called):
    """The addresses at which the machines of the group `called` are reached by `caller`, in their order."""
    return [machine.private if caller.region == called.region else machine.public for machine in called.running]


def address_for(caller, called):
    """The address of the first machine."""
    return addresses_for(caller, called)[0]


def subnet_of(group):
    """Where the machines of a group have their private addresses."""
    return f"10.0.{group.number}.0/24"


def user_data(experiment, identifier, public_key):
    with open(os.path.join(HERE, "user_data.sh"), encoding="utf-8") as file:
        return file.read().format(paid_minutes=experiment.paid_minutes, traffic_mib=experiment.traffic_gib * 1024,
                                  identifier=identifier, public_key=public_key)


def _credits(group):
    """Machines that save up computing time would otherwise take more than they saved, at a price that the file lacks."""
    return {"CreditSpecification": {"CpuCredits": "standard"}} if re.match(r"t\d", group.instance_type) else {}


def _tcp(port, last=None, **where):
    """A rule for a port, or for those up to `last`."""
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": last or port, **where}


class Up:
    """Makes everything. Run again after an interruption, it goes on."""

    def __init__(self, cloud, experiment, public_key):
        self._cloud = cloud
        self._experiment = experiment
        self._public_key = public_key
        self._vpc, self._tables, self._images = {}, {}, {}  # of a region
        self._subnets, self._groups, self._identifiers = {}, {}, {}  # of a party

    def run(self):
        """Every group has its machines (`running`) when this returns; `host_keys` has their keys. Raises Failed."""
        for region in self._experiment.regions:
            self._network(region)
        for group in self._experiment.groups:
            self._place(group)
        for group in self._experiment.groups:
            self._rules(group)
        # Only from here on is anything paid for.
        for group in self._experiment.groups:
            self._start(group)
        for group in self._experiment.groups:
            group.running = self._wait_for(group)
        for caller, called in callers(self._experiment):
            if caller.region != called.region:
                self._rules_between_regions(caller, called)
        return {machine.identifier: self._host_key(machine)
                for group in self._experiment.groups for machine in group.running}

    def _network(self, region):
        cloud = self._cloud
        [self._vpc[region]] = cloud.make(
            f"{region}-network", region, "vpc", "CreateVpc", lambda a: [a["Vpc"]["VpcId"]], CidrBlock="10.0.0.0/16")
        [gateway] = cloud.make(
            f"{region}-gateway", region, "internet-gateway", "CreateInternetGateway",
            lambda a: [a["InternetGateway"]["InternetGatewayId"]])
        cloud.change(f"{region}-gateway-attached", region, "AttachInternetGateway", ("Resource.AlreadyAssociated",),
                     InternetGatewayId=gateway, VpcId=self._vpc[region])
        [self._tables[region]] = cloud.make(
            f"{region}-routes", region, "route-table", "CreateRouteTable",
            lambda a: [a["RouteTable"]["RouteTableId"]], VpcId=self._vpc[region])
        cloud.change(f"{region}-routes-out", region, "CreateRoute", ("RouteAlreadyExists",),
                     RouteTableId=self._tables[region], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        self._images[region] = self._experiment.images.get(region) or self._newest_image(region)
        # Parties of one machine get hardware of their own.
        if any(group.region == region and group.machines == 1 for group in self._experiment.groups):
            self._placement_group(f"{region}-spread", region, "spread")

    def _newest_image(self, region):
        def newest(answer):
            found = sorted(answer["Images"], key=lambda image: image["CreationDate"])
            if not found:
                raise Failed(f"no image of Debian 12 in {region}; name one in `images`")
            return found[-1]["ImageId"]

        return self._cloud.wait(
            f"the image of Debian 12 in {region}", region, "DescribeImages", newest, 60, planned="<newest>", Owners=[_DEBIAN],
            Filters=[{"Name": "name", "Values": ["debian-12-amd64-*"]}, {"Name": "state", "Values": ["available"]}])

    def _placement_group(self, step, region, strategy):
        name = self._placement_name(step)
        self._cloud.make(step, region, "placement-group", "CreatePlacementGroup", lambda a: [name],
                         GroupName=name, Strategy=strategy)

    def _placement_name(self, step):
        """The provider knows placement groups by their name, which is the experiment's own."""
        return f"shoal-{self._cloud.identifier}-{step}"

    def _place(self, group):
        cloud, region = self._cloud, group.region
        [subnet] = cloud.make(
            f"{group.name}-subnet", region, "subnet", "CreateSubnet", lambda a: [a["Subnet"]["SubnetId"]],
            VpcId=self._vpc[region], CidrBlock=subnet_of(group), AvailabilityZone=group.zone)
        cloud.change(f"{group.name}-subnet-routes", region, "AssociateRouteTable", ("Resource.AlreadyAssociated",),
                     RouteTableId=self._tables[region], SubnetId=subnet)
        [self._groups[group.name]] = cloud.make(
            f"{group.name}-security", region, "security-group", "CreateSecurityGroup", lambda a: [a["GroupId"]],
            GroupName=f"shoal-{cloud.identifier}-{group.name}", Description=f"Shoal, {cloud.name}, {group.name}",
            VpcId=self._vpc[region])
        cloud.change(f"{group.name}-security-closed", region, "RevokeSecurityGroupEgress",
                     ("InvalidPermission.NotFound",), GroupId=self._groups[group.name], IpPermissions=_ALL_OUT)
        if group.machines > 1:
            self._placement_group(f"{group.name}-cluster", region, "cluster")
        self._subnets[group.name] = subnet

    def _open(self, group, direction, step, permissions):
        step = f"{group.name}-{step}-{direction.lower()}"
        self._cloud.change(
            step, group.region, f"AuthorizeSecurityGroup{direction}", ("InvalidPermission.Duplicate",),
            GroupId=self._groups[group.name], IpPermissions=permissions,
            TagSpecifications=aws.tag_specifications(
                aws.tags_of(self._cloud.identifier, self._cloud.name, step), ("security-group-rule",)))

    def _rules(self, group):
        """What does not need addresses."""
        def of(other):
            return {"UserIdGroupPairs": [{"GroupId": self._groups[other.name]}]}

        come = [_tcp(_SSH_PORT, IpRanges=[{"CidrIp": str(self._experiment.operator)}])]
        # Packages come by http and https.
        go = [_tcp(80, **_ANYWHERE), _tcp(443, **_ANYWHERE)]
        if group.machines > 1:
            own = [_tcp(_SSH_PORT, **of(group)), _tcp(*MACHINES_PORTS, **of(group))]
            come += own
            go += own
        for caller, called in callers(self._experiment):
            if caller.region == called.region:
                if called is group:
                    come.append(_tcp(port_of(called), **of(caller)))
                if caller is group:
                    go.append(_tcp(port_of(called), **of(called)))
        self._open(group, "Ingress", "rules", come)
        self._open(group, "Egress", "rules", go)

    def _rules_between_regions(self, caller, called):
        def of(group):
            return {"IpRanges": [{"CidrIp": f"{machine.public}/32"} for machine in group.running]}

        self._open(called, "Ingress", f"from-{caller.name}", [_tcp(port_of(called), **of(caller))])
        self._open(caller, "Egress", f"to-{called.name}", [_tcp(port_of(called), **of(called))])

    def _start(self, group):
        cloud, region = self._cloud, group.region
        step = f"{region}-spread" if group.machines == 1 else f"{group.name}-cluster"
        self._identifiers[group.name] = cloud.make(
            f"{group.name}-machines", region, "instance", "RunInstances",
            lambda a: [instance["InstanceId"] for instance in a["Instances"]], ("volume", "network-interface"),
            ImageId=self._images[region], InstanceType=group.instance_type, **_credits(group), MinCount=group.machines,
            MaxCount=group.machines, ClientToken=f"shoal-{cloud.identifier}-{group.name}",
            InstanceInitiatedShutdownBehavior="terminate",
            UserData=user_data(self._experiment, cloud.identifier, self._public_key),
            Placement={"AvailabilityZone": group.zone, "GroupName": self._placement_name(step)},
            MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            NetworkInterfaces=[{
                "DeviceIndex": 0, "SubnetId": self._subnets[group.name], "Groups": [self._groups[group.name]],
                "AssociatePublicIpAddress": True, "DeleteOnTermination": True}],
            BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {
                "VolumeSize": group.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}}])

    def _wait_for(self, group):
        identifiers = self._identifiers[group.name]

        def running(answer):
            found = aws.inside(answer, aws.KINDS["instance"].path)
            for instance in found:
                if instance["State"]["Name"] not in ("pending", "running"):
                    why = instance.get("StateReason", {}).get("Message", "no reason given")
                    raise Failed(f"{group.name}: {instance['InstanceId']} is {instance['State']['Name']}: {why}")
            if len(found) < len(identifiers) or any(
                    instance["State"]["Name"] != "running" or not instance.get("PublicIpAddress") for instance in found):
                return None
            found.sort(key=lambda instance: (instance["AmiLaunchIndex"], instance["InstanceId"]))
            return [Machine(group, index, instance["InstanceId"], instance["PrivateIpAddress"],
                            instance["PublicIpAddress"]) for index, instance in enumerate(found)]

        return self._cloud.wait(
            f"{group.name} runs", group.region, "DescribeInstances", running, _START_LIMIT_S, planned=[
                Machine(group, index, identifiers[0], f"<{group.name}-private>", f"<{group.name}-public>")
                for index in range(group.machines)],
            InstanceIds=identifiers)

    def _host_key(self, machine):
        """The machine's ssh host key, as it stands on its console, which only the account's owner reads."""
        line = re.compile(
            rf"shoal-host-key {re.escape(self._cloud.identifier)} (ssh-ed25519 [A-Za-z0-9+/]{{68}}={{0,2}})(?=\s)")

        def shown(answer):
            text = answer.get("Output", "")
            found = line.search(text)
            return found and found[1]

        return self._cloud.wait(f"{machine} shows its host key", machine.group.region, "GetConsoleOutput", shown,
                                _CONSOLE_LIMIT_S, InstanceId=machine.identifier, Latest=True)


class Down:
    """Removes everything, whatever there is of it."""

    def __init__(self, cloud, regions, begun_last_s=0, settle_s=0):
        """What a call of unknown outcome (`begun_last_s`) made may show itself within `settle_s`."""
        self._cloud = cloud
        self._regions = regions
        self._settled_s = begun_last_s + settle_s if begun_last_s else 0

    def run(self):
        """Nothing is left when this returns. Raises Failed, with what is left.

        An error in one region stops nothing in another. What may pass is tried again.
        """
        begun = time.monotonic()
        while True:
            left, errors, ending = [], {}, {}
            # All machines before anything else: they are what is paid for.
            for step in (self._end_machines, self._wait_for_end, self._remove, self._look):
                for region in self._regions:
                    if region in errors:
                        continue
                    try:
                        step(region, ending, left)
                    except (Failed, botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
                        errors[region] = error
            left += [f"{region}: {error}" for region, error in errors.items()]
            if not all(aws.passes(error) for error in errors.values()):
                raise Failed("left: " + ", ".join(left))
            waits = time.time() < self._settled_s
            if not left and not waits:
                return
            if left and time.monotonic() - begun > _REMOVE_LIMIT_S:
                raise Failed("left: " + ", ".join(left))
            say(f"left: {', '.join(left)}" if left else
                f"a call was interrupted: looking for {self._settled_s - time.time():.0f} s whether it made something")
            time.sleep(2 if left else min(10, max(0.1, self._settled_s - time.time())))

    def _end_machines(self, region, ending, _):
        found = [instance["InstanceId"] for instance in self._cloud.find(region, "instance")]
        if found:
            self._cloud.call(region, "ec2", "TerminateInstances", InstanceIds=found)
            ending[region] = found

    def _wait_for_end(self, region, ending, _):
        found = ending.get(region)
        if not found:
            return

        def ended(answer):
            states = [instance["State"]["Name"] for instance in aws.inside(answer, aws.KINDS["instance"].path)]
            return True if all(state == "terminated" for state in states) else None

        self._cloud.wait(f"{len(found)} machines of {region} end", region, "DescribeInstances", ended, _END_LIMIT_S,
                         Filters=[{"Name": "instance-id", "Values": found}])
        self._cloud.gone(region, "instance", found)

    def _remove(self, region, *_):
        """In the order in which the provider allows it."""
        for group in self._each(region, "placement-group"):
            self._take(region, "DeletePlacementGroup", GroupName=group["GroupName"])
        for interface in self._each(region, "network-interface"):
            self._take(region, "DeleteNetworkInterface", NetworkInterfaceId=interface["NetworkInterfaceId"])
        for volume in self._each(region, "volume"):
            self._take(region, "DeleteVolume", VolumeId=volume["VolumeId"])
        groups = self._each(region, "security-group")
        # Rules of one group name another, and as long as they do, that one stays.
        for group in groups:
            for direction, field in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
                if group.get(field):
                    self._take(region, f"RevokeSecurityGroup{direction}", GroupId=group["GroupId"],
                               IpPermissions=group[field])
        for group in groups:
            self._take(region, "DeleteSecurityGroup", GroupId=group["GroupId"])
        tables = self._each(region, "route-table")
        for table in tables:
            for association in table.get("Associations", []):
                if not association.get("Main"):
                    self._take(region, "DisassociateRouteTable",
                               AssociationId=association["RouteTableAssociationId"])
        for subnet in self._each(region, "subnet"):
            self._take(region, "DeleteSubnet", SubnetId=subnet["SubnetId"])
        for table in tables:
            self._take(region, "DeleteRouteTable", RouteTableId=table["RouteTableId"])
        for gateway in self._each(region, "internet-gateway"):
            for attachment in gateway.get("Attachments", []):
                self._take(region, "DetachInternetGateway", InternetGatewayId=gateway["InternetGatewayId"],
                           VpcId=attachment["VpcId"])
            self._take(region, "DeleteInternetGateway", InternetGatewayId=gateway["InternetGatewayId"])
        for vpc in self._each(region, "vpc"):
            self._take(region, "DeleteVpc", VpcId=vpc["VpcId"])

    def _each(self, region, kind):
        found = self._cloud.find(region, kind)
        self._cloud.gone(region, kind, [thing[aws.KINDS[kind].identifier] for thing in found])
        return found

    def _take(self, region, operation, **parameters):
        """One removal. What is gone already is no error, and what is still in use stays for the next pass."""
        try:
            self._cloud.call(region, "ec2", operation, **parameters)
        except botocore.exceptions.ClientError as error:
            code = aws.code_of(error)
            if not (code.endswith(".NotFound") or code in ("Gateway.NotAttached", "InvalidPlacementGroup.Unknown")):
                say(f"{operation} in {region}: {error}")
            if not aws.passes(error):
                raise

    def _look(self, region, _, left):
        left += [f"{region}: {kind} {thing[aws.KINDS[kind].identifier]}"
                 for kind in aws.KINDS for thing in self._cloud.find(region, kind)]
