"""configs/kubernetes is valid, strictly, is as hard as it claims, and shoald takes its configuration.

Broken on purpose, each variant is found. No cluster is reached: what a cluster makes of the files is not tested.
SHOAL_BIN has the programs, as bazel-bin/src.
"""

import copy
import os
import re
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml
from google.protobuf import text_format

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

from cloud import experiment, workload  # noqa: E402

CONFIG = experiment.message_class(
    os.path.join(ROOT, "src/shoald"), "config.proto", "shoal.shoald.ServerConfig")

VERSION = "1.29"  # the first in which volumes for one pod alone are stable
PARTY = os.path.join(ROOT, "configs/kubernetes/party.yaml")
MACHINES = os.path.join(ROOT, "configs/kubernetes/machines.yaml")
TABLE = os.path.join(ROOT, "configs/kubernetes/table.yaml")
BIN = os.path.abspath(os.environ.get("SHOAL_BIN", os.path.join(ROOT, "bazel-bin/src")))


def read(path):
    with open(path, encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def of(documents, kind, name=None):
    [found] = [one for one in documents if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    return found


def pods(documents):
    return [one["spec"]["template"]["spec"] if one["kind"] == "StatefulSet" else one["spec"]
            for one in documents if one["kind"] in ("StatefulSet", "Pod")]


def config_of(documents):
    return text_format.Parse(of(documents, "ConfigMap")["data"]["party.textproto"], CONFIG())


# What party.yaml and table.yaml have, and nothing else. Mounts: container -> folder -> (volume, for reading only).
MOUNTS = {
    "keys": {"/secret": ("secret", True), "/keys": ("keys", False)},
    "shoald": {"/config": ("config", True), "/public": ("public", True), "/keys": ("keys", True), "/table": ("table", True),
               "/state": ("state", False)},
    "table": {"/table": ("table", False)},
}
VOLUMES = {
    "config": {"configMap": {"name": "bob"}},
    "public": {"configMap": {"name": "bob-public"}},
    "secret": {"secret": {"secretName": "bob-keys", "defaultMode": 0o440}},
    "keys": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    "table": {"persistentVolumeClaim": {"claimName": "bob-table"}},
}
PROBES = {
    "startupProbe": {"httpGet": {"path": "/metrics", "port": "monitoring"}, "periodSeconds": 10, "failureThreshold": 180},
    "livenessProbe": {"httpGet": {"path": "/metrics", "port": "monitoring"}, "periodSeconds": 10, "timeoutSeconds": 10,
                      "failureThreshold": 6},
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": "monitoring"}, "periodSeconds": 10},
}
BEFORE, AFTER = "192.0.2.10/32", "203.0.113.20/32"
INGRESS = [{"from": [{"ipBlock": {"cidr": BEFORE}}], "ports": [{"protocol": "TCP", "port": 7301}]}]
EGRESS = [
    {"to": [{"ipBlock": {"cidr": AFTER}}], "ports": [{"protocol": "TCP", "port": 7302}]},
    {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
             "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
     "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
]


def schema_problems(documents):
    """What Kubernetes would not take, in sentences."""
    found = []
    for document in documents:
        try:
            kubernetes_validate.validate(document, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{document.get('kind')}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            found.append(f"no {document.get('kind')} in {document.get('apiVersion')}")
    return found


def pod_problems(documents, mounts_of, volumes_of, claims):
    """What is soft about pods, in sentences. Mounts are by container, volumes by name; `claims` have templates."""
    found = []

    def need(true, words):
        if not true:
            found.append(words)

    for pod in pods(documents):
        own = pod.get("securityContext", {})
        volumes = {volume["name"]: {what: value for what, value in volume.items() if what != "name"}
                   for volume in pod["volumes"]}
        need(len(volumes) == len(pod["volumes"]) and volumes and
             all(volume in volumes_of.get(name, ()) for name, volume in volumes.items()), "other volumes")
        need(own.get("fsGroupChangePolicy") == "OnRootMismatch", "each start opens the state to the group")
        need(pod.get("automountServiceAccountToken") is False, "has a token of the cluster")
        need(not pod.get("hostNetwork") and not pod.get("hostPID") and not pod.get("hostIPC"), "shares with the host")
        for container in pod["containers"] + pod.get("initContainers", []):
            # A container's settings take the place of the pod's.
            hard = {**own, **container.get("securityContext", {})}
            need(hard.get("runAsNonRoot") is True and hard.get("runAsUser") == hard.get("runAsGroup") == 10001,
                 "runs as root")
            need(hard.get("seccompProfile") == {"type": "RuntimeDefault"}, "all system calls")
            need(hard.get("allowPrivilegeEscalation") is False and not hard.get("privileged"), "may get privileges")
            need(hard.get("readOnlyRootFilesystem") is True, "writes to its image")
            need(hard.get("capabilities") == {"drop": ["ALL"]}, "has capabilities")
            need({"cpu", "memory"} <= set(container.get("resources", {}).get("limits", {})), "takes any memory")
            mounts = {mount["mountPath"]: (mount["name"], mount.get("readOnly", False)) for mount in container["volumeMounts"]}
            need(mounts == mounts_of.get(container["name"]) and len(mounts) == len(container["volumeMounts"]), "other mounts")
            need(all(set(mount) <= {"name", "mountPath", "readOnly"} for mount in container["volumeMounts"]), "other mounts")
            need({name for name, _ in mounts.values()} <= set(volumes) | claims, "mounts what is not there")
    return found


def problems(documents):
    """What is wrong with party.yaml or table.yaml, in sentences."""
    found = schema_problems(documents)
    if found:
        return found
    found = pod_problems(documents, MOUNTS, {name: [volume] for name, volume in VOLUMES.items()}, {"state"})

    def need(true, words):
        if not true:
            found.append(words)

    for document in documents:
        if document["kind"] != "StatefulSet":
            continue
        spec = document["spec"]
        labels = spec["template"]["metadata"]["labels"]
        selected = {"app": "shoal", "party": document["metadata"]["name"]}
        need(spec["replicas"] == 1, "more than one process of a party")
        need(spec.get("updateStrategy") == {"type": "OnDelete"}, "restarts by itself, which ends rounds")
        need(spec["template"]["spec"].get("terminationGracePeriodSeconds") == 60, "no time to erase secrets")
        need(spec["selector"]["matchLabels"] == selected == labels, "selector and labels differ")
        services = [one for one in documents if one["kind"] == "Service"]
        need(any(one["metadata"]["name"] == spec["serviceName"] and one["spec"].get("clusterIP") == "None"
                 for one in services), "no headless Service")
        for service in services:
            if service["spec"].get("clusterIP") != "None":
                need(service["spec"].get("loadBalancerSourceRanges") == [BEFORE], "the load balancer lets others in")
            need([(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(7301, "peer")],
                 "a Service has other ports")
            need(service["spec"]["selector"] == labels, "a Service selects others")
            need(service["spec"].get("publishNotReadyAddresses") is True, "a party that is not well is cut off")
            need(service["spec"].get("clusterIP") == "None" or
                 service["spec"].get("externalTrafficPolicy") == "Local", "shoald does not see who connects")
        [claim] = [claim for claim in spec["volumeClaimTemplates"] if claim["metadata"]["name"] == "state"]
        need(claim["spec"]["accessModes"] == ["ReadWriteOncePod"], "two processes may have the state")
        [container] = spec["template"]["spec"]["containers"]
        need({name: container.get(name) for name in PROBES} == PROBES, "other probes")
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        need(named == {"peer": 7301, "monitoring": 9464}, "other ports")
        try:
            config = config_of(documents)
        except text_format.ParseError as error:
            found.append(f"party.textproto: {error}")
            continue
        need(config.listen_address == "0.0.0.0:7301", "shoald listens elsewhere")
        need((config.monitoring.host, config.monitoring.port) == ("0.0.0.0", 9464), "the kubelet does not reach its pages")
        need(str(config.threads) == container["resources"]["limits"].get("cpu"), "more threads than processors")
        need(0 < config.spool_memory_mib <= 1024, "more memory than the container has")
        need((config.keys_directory, config.roster_file, config.pinned_parties_file, config.table_directory,
              config.state_directory) == ("/keys/party", "/public/roster.textproto", "/public/pinned.textproto",
                                          "/table/table", "/state/journal"), "paths that are not mounted")
        policy = of(documents, "NetworkPolicy")["spec"]
        need(policy["podSelector"]["matchLabels"] == labels, "the NetworkPolicy is of others")
        need(set(policy["policyTypes"]) == {"Ingress", "Egress"}, "the NetworkPolicy lets all out, or in")
        need(policy.get("ingress") == INGRESS, "others than the party before get in")
        need(policy.get("egress") == EGRESS, "others than the party after are reached")
    return found


# What machines.yaml has, and nothing else.
LARGE_MOUNTS = {
    "keys": {"/secret/party": ("secret", True), "/secret/ssh": ("ssh", True), "/keys": ("keys", False)},
    "machine": {**MOUNTS["shoald"], "/tmp": ("tmp", False)},
}
LARGE_SECRETS = {"bob-head": ("bob-keys", "bob-ssh-head"), "bob-machine": ("bob-machine-keys", "bob-ssh-machine")}
LARGE_VOLUMES = {
    "config": [VOLUMES["config"]], "public": [VOLUMES["public"]], "keys": [VOLUMES["keys"]],
    "tmp": [{"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    **{name: [{"secret": {"secretName": secrets[i], "defaultMode": 0o440}} for secrets in LARGE_SECRETS.values()]
       for i, name in enumerate(("secret", "ssh"))},
}
BOB = {"app": "shoal", "party": "bob"}
MACHINES_PORTS = {"protocol": "TCP", "port": 7400, "endPort": 7419}
LARGE_INGRESS = INGRESS + [
    {"from": [{"podSelector": {"matchLabels": BOB}}], "ports": [MACHINES_PORTS]},
    {"from": [{"podSelector": {"matchLabels": {**BOB, "machine": "head"}}}], "ports": [{"protocol": "TCP", "port": 2222}]},
]
LARGE_EGRESS = [
    EGRESS[0], {"to": [{"podSelector": {"matchLabels": BOB}}], "ports": [MACHINES_PORTS, {"protocol": "TCP", "port": 2222}]},
    EGRESS[1]]
LARGE_PROBES = {
    "bob-head": PROBES,
    "bob-machine": {"startupProbe": None, "readinessProbe": PROBES["readinessProbe"], "livenessProbe": {
        "tcpSocket": {"port": "ssh"}, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6}},
}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": BOB}}]}}


def large_problems(documents):
    """What is wrong with machines.yaml, in sentences."""
    found = schema_problems(documents)
    if found:
        return found
    found = pod_problems(documents, LARGE_MOUNTS, LARGE_VOLUMES, {"state", "table"})

    def need(true, words):
        if not true:
            found.append(words)

    sets = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "StatefulSet"}
    need(set(sets) == set(LARGE_SECRETS), "other StatefulSets")
    names = [f"{name}-{i}" for name, spec in sets.items() for i in range(spec["replicas"])]
    for name, spec in sets.items():
        role = {"bob-head": "head", "bob-machine": "other"}[name]
        pod = spec["template"]["spec"]
        need(name != "bob-head" or spec["replicas"] == 1, "more than one head")
        need(spec.get("podManagementPolicy") == "Parallel", "pods that wait for each other")
        need(spec.get("updateStrategy") == {"type": "OnDelete"}, "restarts by itself, which ends rounds")
        need(pod.get("terminationGracePeriodSeconds") == 60, "no time to erase secrets")
        need(spec["selector"]["matchLabels"] == {**BOB, "machine": role} == spec["template"]["metadata"]["labels"],
             "selector and labels differ")
        need(pod.get("affinity") == APART, "two machines on one node")
        secrets = tuple(volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume)
        need(secrets == LARGE_SECRETS[name], "secrets of others")
        claims = {claim["metadata"]["name"]: claim["spec"]["accessModes"] for claim in spec["volumeClaimTemplates"]}
        need(claims == {"state": ["ReadWriteOncePod"], "table": ["ReadWriteOnce"]}, "two processes may have the state")
        [container] = pod["containers"]
        need({probe: container.get(probe) for probe in PROBES} == LARGE_PROBES[name], "other probes")
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        need(named == {"peer": 7301, "monitoring": 9464, **({"ssh": 2222} if role == "other" else {})}, "other ports")
        command = ["/usr/local/bin/machine", role] + (
            [f"{pod_name}.{spec['serviceName']}" for pod_name in names] if role == "head" else [])
        need(container["command"] == command, "other machines than there are pods")
        need([one["command"] for one in pod["initContainers"]] == [["/usr/local/bin/machine", "keys"]], "keys are not copied")
    services = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Service"}
    need({service["selector"].get("statefulset.kubernetes.io/pod-name") for service in services.values()} ==
         {None, *names}, "not an address for each machine")
    for name, service in services.items():
        pod_name = service["selector"].get("statefulset.kubernetes.io/pod-name")
        need({**BOB, **({"statefulset.kubernetes.io/pod-name": pod_name} if pod_name else {})} == service["selector"],
             "a Service selects others")
        need([(port["port"], port["targetPort"]) for port in service["ports"]] == [(7301, "peer")],
             "a Service has other ports")
        need(service.get("publishNotReadyAddresses") is True, "a party that is not well is cut off")
        if pod_name:
            need(service.get("loadBalancerSourceRanges") == [BEFORE], "the load balancer lets others in")
            need(service.get("externalTrafficPolicy") == "Local", "nobody sees who connects")
        else:
            need(name == "bob" and service.get("clusterIP") == "None", "no headless Service")
    need(of(documents, "ConfigMap")["data"]["party.textproto"] == of(read(PARTY), "ConfigMap")["data"]["party.textproto"],
         "another configuration than that of one machine")
    policy = of(documents, "NetworkPolicy")["spec"]
    need(policy["podSelector"]["matchLabels"] == BOB, "the NetworkPolicy is of others")
    need(set(policy["policyTypes"]) == {"Ingress", "Egress"}, "the NetworkPolicy lets all out, or in")
    need(policy.get("ingress") == LARGE_INGRESS, "others get in")
    need(policy.get("egress") == LARGE_EGRESS, "others are reached")
    return found


class LargePartyTest(unittest.TestCase):
    """machines.yaml. machines_namespaces_test.py runs its pods."""

    def test_the_file_is_valid_and_hard(self):
        self.assertEqual(large_problems(read(MACHINES)), [])

    def test_broken_variants_are_found(self):
        def stateful(documents, name="bob-machine"):
            return of(documents, "StatefulSet", name)["spec"]

        def pod(documents, name="bob-machine"):
            return stateful(documents, name)["template"]["spec"]

        def machine(documents, name="bob-machine"):
            return pod(documents, name)["containers"][0]

        def rule(documents, direction, i):
            return of(documents, "NetworkPolicy")["spec"][direction][i]

        for name, change in {
                "unknown field": lambda d: stateful(d).update(replicaCount=1),
                "wrong type": lambda d: rule(d, "ingress", 1)["ports"][0].update(endPort="7419"),
                "two heads": lambda d: stateful(d, "bob-head").update(replicas=2),
                "a machine more than the head knows": lambda d: stateful(d).update(replicas=3),
                "a machine less than the head knows": lambda d: machine(d, "bob-head")["command"].pop(),
                "two machines on one node": lambda d: pod(d).pop("affinity"),
                "the signing key at all": lambda d: pod(d)["volumes"][2]["secret"].update(secretName="bob-keys"),
                "the head's ssh key at all": lambda d: pod(d)["volumes"][3]["secret"].update(secretName="bob-ssh-head"),
                "others reach Open MPI": lambda d: rule(d, "ingress", 1).update({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}),
                "all pods reach Open MPI": lambda d: rule(d, "ingress", 1)["from"][0].update(podSelector={}),
                "the party before reaches Open MPI": lambda d: rule(d, "ingress", 0)["ports"].append(dict(MACHINES_PORTS)),
                "all machines may use ssh": lambda d: rule(d, "ingress", 2)["from"][0]["podSelector"]["matchLabels"].pop(
                    "machine"),
                "ssh from anywhere": lambda d: rule(d, "ingress", 2).pop("from"),
                "the world is reached": lambda d: rule(d, "egress", 1).pop("to"),
                "root": lambda d: pod(d)["securityContext"].update(runAsUser=0),
                "a container as root": lambda d: machine(d)["securityContext"].update(runAsUser=0, runAsNonRoot=False),
                "privileges": lambda d: machine(d, "bob-head")["securityContext"].update(allowPrivilegeEscalation=True),
                "host's network": lambda d: pod(d).update(hostNetwork=True),
                "a token of the cluster": lambda d: pod(d).pop("automountServiceAccountToken"),
                "no limits": lambda d: machine(d).update(resources={}),
                "state inside the container": lambda d: machine(d)["volumeMounts"].pop(4),
                "keys on a disk": lambda d: pod(d)["volumes"][4].update(emptyDir={}),
                "no keys are copied": lambda d: pod(d)["initContainers"][0].update(command=["/bin/true"]),
                "no address for a machine": lambda d: d.remove(of(d, "Service", "bob-peer-2")),
                "one address for two machines": lambda d: of(d, "Service", "bob-peer-2")["spec"]["selector"].update(
                    {"statefulset.kubernetes.io/pod-name": "bob-machine-0"}),
                "ssh for the load balancer": lambda d: of(d, "Service", "bob-peer-1")["spec"]["ports"].append(
                    {"name": "ssh", "port": 2222, "targetPort": "ssh"}),
                "a load balancer for all": lambda d: of(d, "Service", "bob-peer-1")["spec"].pop("loadBalancerSourceRanges"),
                "names of ready pods alone": lambda d: of(d, "Service", "bob")["spec"].pop("publishNotReadyAddresses"),
                "restarted when sick": lambda d: machine(d, "bob-head")["livenessProbe"]["httpGet"].update(path="/healthz"),
                "restarts by itself": lambda d: stateful(d).update(updateStrategy={"type": "RollingUpdate"}),
                "another configuration": lambda d: of(d, "ConfigMap")["data"].update({"party.textproto": "party: 2"}),
        }.items():
            with self.subTest(name):
                documents = copy.deepcopy(read(MACHINES))
                change(documents)
                self.assertNotEqual(large_problems(documents), [])

    def test_the_image_has_the_libraries(self):
        with open(os.path.join(ROOT, "configs/kubernetes/machines.Containerfile"), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        installed = re.search(r"--no-install-recommends +(.*?) *&&", text)[1].split()
        self.assertEqual(sorted(installed), sorted(
            workload.LIBRARIES + workload.LARGE_PARTY_LIBRARIES + ("openssh-server", "python3")))


class KubernetesTest(unittest.TestCase):
    maxDiff = None

    def test_the_files_are_valid_and_hard(self):
        self.assertEqual(problems(read(PARTY)), [])
        self.assertEqual(problems(read(TABLE)), [])

    def test_broken_variants_are_found(self):
        def stateful(documents):
            return of(documents, "StatefulSet")["spec"]

        def pod(documents):
            return stateful(documents)["template"]["spec"]

        def shoald(documents):
            return pod(documents)["containers"][0]

        def configured(documents, old, new):
            data = of(documents, "ConfigMap")["data"]
            self.assertIn(old, data["party.textproto"])
            data["party.textproto"] = data["party.textproto"].replace(old, new)

        for name, change in {
                "unknown field": lambda d: stateful(d).update(replicaCount=1),
                "unknown field of a container": lambda d: shoald(d).update(securityContexts={}),
                "wrong type": lambda d: stateful(d).update(replicas="one"),
                "wrong type of a port": lambda d: shoald(d)["ports"][0].update(containerPort="7301"),
                "no selector": lambda d: stateful(d).pop("selector"),
                "no service name and no template": lambda d: stateful(d).pop("template"),
                "no podSelector": lambda d: of(d, "NetworkPolicy")["spec"].pop("policyTypes") and
                of(d, "NetworkPolicy")["spec"].update(podSelectors={}),
                "unknown kind": lambda d: d[0].update(kind="ConfigMaps"),
                "unknown version": lambda d: of(d, "StatefulSet").update(apiVersion="apps/v2"),
                "other labels": lambda d: stateful(d)["template"]["metadata"]["labels"].update(party="alice"),
                "two processes": lambda d: stateful(d).update(replicas=2),
                "root": lambda d: pod(d)["securityContext"].update(runAsUser=0),
                "no securityContext": lambda d: shoald(d).pop("securityContext"),
                "capability": lambda d: shoald(d).update(securityContext={
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}),
                "host's network": lambda d: pod(d).update(hostNetwork=True),
                "host's files": lambda d: pod(d)["volumes"].append({"name": "h", "hostPath": {"path": "/"}}),
                "state opened": lambda d: pod(d)["securityContext"].update(fsGroupChangePolicy="Always"),
                "a mount of nothing": lambda d: pod(d)["volumes"].pop(0),
                "restarted when sick": lambda d: shoald(d)["livenessProbe"]["httpGet"].update(path="/healthz"),
                "cut off when sick": lambda d: of(d, "Service", "bob-peer")["spec"].pop("publishNotReadyAddresses"),
                "addresses hidden": lambda d: of(d, "Service", "bob-peer")["spec"].pop("externalTrafficPolicy"),
                "anybody gets in": lambda d: of(d, "NetworkPolicy")["spec"]["ingress"][0].pop("from"),
                "the world gets in": lambda d: of(d, "NetworkPolicy")["spec"]["ingress"][0]["from"][0]["ipBlock"].update(
                    cidr="0.0.0.0/0"),
                "monitoring open": lambda d: of(d, "NetworkPolicy")["spec"]["ingress"][0]["ports"].append(
                    {"protocol": "TCP", "port": 9464}),
                "root in a container": lambda d: shoald(d).update(securityContext={
                    **shoald(d)["securityContext"], "runAsUser": 0, "runAsNonRoot": False}),
                "all system calls in a container": lambda d: shoald(d).update(securityContext={
                    **shoald(d)["securityContext"], "seccompProfile": {"type": "Unconfined"}}),
                "no limits": lambda d: shoald(d).update(resources={"limits": {}}),
                "a token of the cluster in a volume": lambda d: pod(d)["volumes"].append({
                    "name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}),
                "every namespace is reached": lambda d: of(d, "NetworkPolicy")["spec"]["egress"].append({
                    "to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 1, "endPort": 65535}]}),
                "many ports get in": lambda d: of(d, "NetworkPolicy")["spec"]["ingress"][0]["ports"][0].update(endPort=65535),
                "a load balancer for all": lambda d: of(d, "Service", "bob-peer")["spec"].update(
                    loadBalancerSourceRanges=["0.0.0.0/0"]),
                "a load balancer for all, unsaid": lambda d: of(d, "Service", "bob-peer")["spec"].pop(
                    "loadBalancerSourceRanges"),
                "monitoring for the pod itself": lambda d: configured(d, 'host: "0.0.0.0"', 'host: "127.0.0.1"'),
                "no such field": lambda d: configured(d, "stage_limit_s", "stage_limit"),
                "threads of the whole node": lambda d: configured(d, "threads: 2", ""),
                "probe of the peers' port": lambda d: shoald(d)["livenessProbe"]["httpGet"].update(port="peer"),
                "probe of another port": lambda d: shoald(d)["readinessProbe"]["httpGet"].update(port=9999),
                "no time to start": lambda d: shoald(d).pop("startupProbe"),
                "state inside the container": lambda d: shoald(d)["volumeMounts"].pop(4),
                "state among the keys": lambda d: shoald(d)["volumeMounts"][4].update(name="keys"),
                "keys on a disk": lambda d: pod(d)["volumes"][3].update(emptyDir={}),
                "no time to erase": lambda d: pod(d).update(terminationGracePeriodSeconds=0),
                "restarts by itself": lambda d: stateful(d).update(updateStrategy={"type": "RollingUpdate"}),
                "shared state": lambda d: stateful(d)["volumeClaimTemplates"][0]["spec"].update(
                    accessModes=["ReadWriteMany"]),
        }.items():
            with self.subTest(name):
                documents = copy.deepcopy(read(PARTY))
                change(documents)
                self.assertNotEqual(problems(documents), [])

    def test_the_image_has_the_libraries(self):
        with open(os.path.join(ROOT, "configs/kubernetes/Containerfile"), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        installed = re.search(r"--no-install-recommends +(.*?) *&&", text)[1].split()
        self.assertEqual(sorted(installed), sorted(workload.LIBRARIES))

    def test_shoald_takes_the_configuration_with_keys_as_the_first_container_leaves_them(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            records = os.path.join(folder, "records.tsv")
            with open(records, "w", encoding="utf-8") as file:
                file.writelines(f"key-{i}\tvalue {i}\n" for i in range(20))
            chain = os.path.join(folder, "chain")
            subprocess.run([os.path.join(ROOT, "scripts/local-chain"), "create", chain, "--protect", "lookup", "--",
                            "--tsv", records, "--name", "t", "--row-bytes", "128"],
                           env={**os.environ, "SHOAL_BIN": BIN}, check=True, stdout=subprocess.DEVNULL)
            # A Secret is mounted as links into a folder that its group may read.
            secret = os.path.join(folder, "secret")
            os.makedirs(os.path.join(secret, "..data"), mode=0o755)
            for name in ("bls.key", "tls.key", "tls.crt", "announcement.textproto"):
                with open(os.path.join(chain, "party-2", name), "rb") as file:
                    content = file.read()
                with open(os.path.join(secret, "..data", name), "wb") as file:
                    file.write(content)
                os.chmod(os.path.join(secret, "..data", name), 0o440)
                os.symlink(os.path.join("..data", name), os.path.join(secret, name))
            for name in ("keys", "public", "state"):
                os.makedirs(os.path.join(folder, name))
                os.chmod(os.path.join(folder, name), 0o2777)
            os.makedirs(os.path.join(folder, "table"))
            os.rename(os.path.join(chain, "table"), os.path.join(folder, "table", "table"))
            for name in ("roster.textproto", "pinned.textproto"):
                os.rename(os.path.join(chain, name), os.path.join(folder, "public", name))
            documents = read(PARTY)
            [first] = of(documents, "StatefulSet")["spec"]["template"]["spec"]["initContainers"]

            def here(text):
                return re.sub(r"(?<![\w/.])/(keys|secret|public|table|state)/", rf"{folder}/\1/", text)

            subprocess.run([first["command"][0], "-c", here(first["command"][2])], check=True, umask=0)
            for path, mode in (("keys/party", 0o700), ("keys/party/bls.key", 0o600)):
                self.assertEqual(os.stat(os.path.join(folder, path)).st_mode & 0o777, mode)
            config = os.path.join(folder, "party.textproto")
            with open(config, "w", encoding="utf-8") as file:
                file.write(here(of(documents, "ConfigMap")["data"]["party.textproto"]))
            done = subprocess.run([os.path.join(BIN, "shoald/shoald"), "--config", config, "--check-files"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
