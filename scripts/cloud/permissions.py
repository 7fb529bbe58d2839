"""For tests: whether a policy of IAM allows a call, as the provider's documents say that it judges.

A call needs an Allow, and no Deny, for its action at each resource that it touches. A call that makes things with tags needs
the same for CreateTags at each of them, with the call's name in ec2:CreateAction. Only what the policy of docs/aws.md uses is
known: anything else in a policy is an error, never a guess.

  https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
  https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html (what each action touches)
  https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html
"""

import collections
import json
import re

# One question: an action at a resource, with the keys of its context.
Question = collections.namedtuple("Question", "action resource context")

# What an action touches. New: kinds that it makes. There: kinds that it names, and the parameters that name them.
_NEW = {
    "AuthorizeSecurityGroupEgress": ("security-group-rule",), "AuthorizeSecurityGroupIngress": ("security-group-rule",),
    "CreateInternetGateway": ("internet-gateway",), "CreatePlacementGroup": ("placement-group",),
    "CreateRouteTable": ("route-table",), "CreateSecurityGroup": ("security-group",), "CreateSubnet": ("subnet",),
    "CreateVpc": ("vpc",), "RunInstances": ("instance", "volume", "network-interface"),
}
_GROUP, _TABLE, _VPC = ("security-group", "GroupId"), ("route-table", "RouteTableId"), ("vpc", "VpcId")
_GATEWAY, _SUBNET, _INSTANCE = ("internet-gateway", "InternetGatewayId"), ("subnet", "SubnetId"), ("instance", r"InstanceId(\.\d+)?")
_THERE = {
    "AssociateRouteTable": (_TABLE, _SUBNET, ("internet-gateway", "GatewayId")),
    "AttachInternetGateway": (_GATEWAY, _VPC),
    "AuthorizeSecurityGroupEgress": (_GROUP,), "AuthorizeSecurityGroupIngress": (_GROUP,),
    "CreateInternetGateway": (), "CreatePlacementGroup": (), "CreateVpc": (),
    "CreateRoute": (_TABLE,), "CreateRouteTable": (_VPC,), "CreateSecurityGroup": (_VPC,), "CreateSubnet": (_VPC,),
    "DeleteInternetGateway": (_GATEWAY,), "DeleteNetworkInterface": (("network-interface", "NetworkInterfaceId"),),
    "DeletePlacementGroup": (("placement-group", "GroupName"),), "DeleteRouteTable": (_TABLE,),
    "DeleteSecurityGroup": (_GROUP,), "DeleteSubnet": (_SUBNET,), "DeleteVolume": (("volume", "VolumeId"),),
    "DeleteVpc": (_VPC,), "DetachInternetGateway": (_GATEWAY, _VPC),
    "DisassociateRouteTable": (_TABLE, _SUBNET),  # those of the association
    "GetConsoleOutput": (_INSTANCE,),
    "RevokeSecurityGroupEgress": (_GROUP,), "RevokeSecurityGroupIngress": (_GROUP,),
    "RunInstances": (
        ("image", "ImageId"), ("subnet", r"(NetworkInterface\.\d+\.)?SubnetId"),
        ("security-group", r"(NetworkInterface\.\d+\.)?SecurityGroupId\.\d+"), ("placement-group", r"Placement\.GroupName"),
        ("network-interface", r"NetworkInterface\.\d+\.NetworkInterfaceId"),
        ("snapshot", r"BlockDeviceMapping\.\d+\.Ebs\.SnapshotId"), ("key-pair", "KeyName"),
        ("launch-template", r"LaunchTemplate\.LaunchTemplateId")),
    "TerminateInstances": (_INSTANCE,),
    "CreateTags": ((None, r"ResourceId\.\d+"),), "DeleteTags": ((None, r"ResourceId\.\d+"),),
}
_KINDS_BY_PREFIX = {"eni": "network-interface", "i": "instance", "igw": "internet-gateway", "rtb": "route-table",
                    "sg": "security-group", "sgr": "security-group-rule", "subnet": "subnet", "vol": "volume", "vpc": "vpc"}
# Those of a public image or a snapshot lie in no account.
_WITHOUT_ACCOUNT = ("image", "snapshot")


class Unknown(Exception):
    """A policy or a call has what this file does not know."""


def _matches(pattern, text):
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), text, re.DOTALL) is not None


def _list(value):
    return value if isinstance(value, list) else [value]


def _holds(operator, key, wanted, context):
    have = {name.lower(): value for name, value in context.items()}.get(key.lower())
    if operator == "Null":
        [word] = _list(wanted)
        return (have is None) == {"true": True, "false": False}[word]
    if operator in ("StringEquals", "Bool"):
        # A key that the context lacks does not match.
        return have is not None and any((have.lower() == one.lower()) if operator == "Bool" else (have == one) for one in _list(wanted))
    raise Unknown(f"the operator {operator}")


class Policy:
    def __init__(self, text):
        document = json.loads(text)
        if set(document) != {"Version", "Statement"} or document["Version"] != "2012-10-17":
            raise Unknown("not Version 2012-10-17 and Statement")
        self._statements = document["Statement"]
        for statement in self._statements:
            if not {"Effect", "Action", "Resource"} <= set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}:
                raise Unknown(f"a statement of {sorted(statement)}")
            if statement["Effect"] not in ("Allow", "Deny"):
                raise Unknown(statement["Effect"])

    def actions(self):
        return {action for statement in self._statements for action in _list(statement["Action"])}

    def allows(self, question):
        found = {statement["Effect"] for statement in self._statements if self._applies(statement, question)}
        return found == {"Allow"}

    @staticmethod
    def _applies(statement, question):
        return (any(_matches(action.lower(), question.action.lower()) for action in _list(statement["Action"])) and
                any(_matches(resource, question.resource) for resource in _list(statement["Resource"])) and
                all(_holds(operator, key, wanted, question.context)
                    for operator, keys in statement.get("Condition", {}).items() for key, wanted in keys.items()))


def _request_tags(parameters):
    """{kind: {key: value}} of the tags that a call asks for."""
    tags = {}
    for name, kind in parameters.items():
        found = re.fullmatch(r"TagSpecification\.(\d+)\.ResourceType", name)
        if found:
            prefix = f"TagSpecification.{found[1]}.Tag"
            tags[kind] = {parameters[f"{prefix}.{i}.Key"]: parameters.get(f"{prefix}.{i}.Value", "")
                          for i in range(1, 51) if f"{prefix}.{i}.Key" in parameters}
    return tags


def _keys(which, tags):
    return {f"aws:{which}/{key}": value for key, value in tags.items()}


def questions(call, account, described, everywhere=False):
    """What the provider asks its policies before a call: every one has to be allowed.

    `described(kind, identifier)` is what is known of a thing that is there: its "tags", and for an image whether it is
    "public". Where the documents leave open whether a key of the request is in the context of a thing that the
    request does not make, it is not there; with `everywhere` it is.
    """
    operation, parameters = call.operation, call.parameters
    if operation.startswith("Describe"):
        return [Question(f"ec2:{operation}", "*", {})]
    if operation not in _THERE:
        raise Unknown(f"what {operation} touches")
    wanted = _request_tags(parameters)
    every_tag = {key: value for tags in wanted.values() for key, value in tags.items()}
    direct = {parameters[name]: parameters.get(name[:-len("Key")] + "Value", "")
              for name in parameters if re.fullmatch(r"Tag\.\d+\.Key", name)}
    asked = []

    def ask(action, kind, identifier, context):
        owner = "" if kind in _WITHOUT_ACCOUNT else account
        asked.append(Question(f"ec2:{action}", f"arn:aws:ec2:{call.region}:{owner}:{kind}/{identifier}", context))

    for kind, pattern in _THERE[operation]:
        for name, identifier in parameters.items():
            if not re.fullmatch(pattern, name):
                continue
            known = kind or _KINDS_BY_PREFIX[identifier.split("-")[0]]
            thing = described(known, identifier)
            context = {**_keys("ResourceTag", thing["tags"]), **_keys("RequestTag", every_tag if everywhere else {}),
                       **_keys("RequestTag", direct)}
            if known == "image":
                context["ec2:Public"] = str(thing["public"]).lower()
            ask(operation, known, identifier, context)
    for kind in _NEW.get(operation, ()):
        ask(operation, kind, "*", _keys("RequestTag", every_tag if everywhere else wanted.get(kind, {})))
        if wanted.get(kind):
            ask("CreateTags", kind, "*", {**_keys("RequestTag", wanted[kind]), "ec2:CreateAction": operation})
    if any(name.startswith("IamInstanceProfile.") for name in parameters):
        asked.append(Question("iam:PassRole", "*", {}))
    if not asked:
        raise Unknown(f"{operation} names nothing")
    return asked
