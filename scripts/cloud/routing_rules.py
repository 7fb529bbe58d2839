"""For tests: who may talk to whom, as rules of routing of network namespaces, where no firewall is installed.

What is to come in is refused where it leaves. As all that a namespace sends needs a rule, a reply, too, it answers only what
it lets in; a reply is known by the port that it comes from.
"""

import subprocess


def enforce(namespace, out, into):
    """`out` and `into`: (network, protocol, first port, last port) that may be reached, and that may reach."""
    lines = ["rule flush"]
    for rules, end in ((out, "dport"), (into, "sport")):
        lines += [f"rule add pref 100 to {network} ipproto {protocol} {end} {first}-{last} lookup main"
                  for network, protocol, first, last in rules]
    lines.append("rule add pref 200 blackhole")
    done = subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise OSError(f"{namespace}: {lines}: {done.stderr}")


def reaches(namespace, address, port):
    """Whether a packet to a port goes out."""
    return subprocess.run(
        ["ip", "-n", namespace, "route", "get", address, "ipproto", "tcp", "dport", str(port)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=False).returncode == 0
