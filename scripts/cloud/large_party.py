"""What a party of several machines needs beside what every party does: ssh between them, files, and a launcher.

The head, the party's first machine, makes the key for that ssh, which stays there; the others take its public half, and
commands from the head's address alone. What they get of the party's secrets comes over this ssh, from the head.
"""

import re
import shlex

from cloud.aws import Failed
from cloud.infrastructure import subnet_of
from cloud.remote import USER

# From the head to another machine, whose key is known from its console. Open MPI wants the program on all machines, and
# parts the command at spaces.
_SSH = " ".join([f"ssh -F /dev/null -x -T -i $HOME/machines/key -l {USER}"] + [f"-o {option}" for option in (
    "BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=$HOME/machines/known_hosts",
    "GlobalKnownHostsFile=/dev/null", "HostKeyAlgorithms=ssh-ed25519", "ForwardAgent=no", "ConnectTimeout=10",
    "ServerAliveInterval=5", "ServerAliveCountMax=3", "LogLevel=ERROR")])
_PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}={0,2} shoal-machines")
# What one machine runs. Its number is for who waits for it, and its folder the same on all.
_PROGRAM = ('cd "$HOME/party"; ulimit -c 0; echo $$ >machine; '
            'exec "$HOME/programs/shoald/machines/shoald-machines" --config party.textproto')


class LargeParty:
    """A party of several machines that run."""

    def __init__(self, remote, group):
        self._remote = remote
        self._group = group
        self._head, *self._others = group.running

    def connect(self):
        """The head reaches the others by ssh. Raises Failed."""
        remote, head = self._remote, self._head
        remote.run(head, "rm -rf machines; mkdir machines; "
                   "ssh-keygen -q -t ed25519 -N '' -C shoal-machines -f machines/key")
        remote.put(head, "machines/known_hosts", "".join(
            f"{other.private} {remote.host_keys[other.identifier]}\n" for other in self._others).encode())
        public_key = remote.run(head, "cat machines/key.pub").decode(errors="replace").strip()
        if not _PUBLIC_KEY.fullmatch(public_key):
            raise Failed(f"{head}: no public key: {public_key[:100]!r}")
        line = f'from="{head.private}",restrict {public_key}\n'.encode()
        remote.each(self._others, lambda other: remote.run(
            other, "cd .ssh; grep -v ' shoal-machines$' authorized_keys >with-machines; cat >>with-machines; "
            "mv with-machines authorized_keys", line))

    def hand_out(self):
        """The others get what each machine has, but for the signing key. Raises Failed."""
        hosts = " ".join(other.private for other in self._others)
        self._remote.run(
            self._head, "set -o pipefail; cd party; rm -rf keys-of-others; shoal keys machine --keys keys --out keys-of-others >/dev/null; "
            f"for host in {hosts}; do tar -c --transform 's,^keys-of-others,keys,' keys-of-others roster.textproto "
            "pinned.textproto table common.textproto | "
            f"{_SSH} $host 'umask 077; rm -rf party; mkdir party; tar -x -C party'; done; rm -r keys-of-others", limit_s=3600)

    def launcher(self):
        """A command of the head that runs the party. Each machine's words go to its party/log."""
        hosts = " ".join(f"--host {machine.private}" for machine in self._group.running)
        return (f'"$HOME/programs/party-machines" --agent "{_SSH}" --network {subnet_of(self._group)} '
                f'--log "$HOME/party/log" {hosts} -- /bin/sh -c {shlex.quote(_PROGRAM)}')
