#!/bin/sh
# What the pods of a party of several machines run (machines.yaml):
#
#   machine keys               copies the mounted secrets to where nobody else may enter
#   machine other              waits for the head's commands, with sshd
#   machine head HOST HOST...  runs the party on these pods, by their names: its own first
#
# The head reaches the others by ssh, with a key and with host keys that the operator made. What a machine says comes out of
# its own pod.
set -eu

fail() { echo "machine: $*" >&2; exit 2; }

# Open MPI parts the command at spaces, and wants the program on all pods.
ssh="ssh -F /dev/null -x -T -p 2222 -i /keys/ssh/key -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes\
 -o UserKnownHostsFile=/keys/ssh/known_hosts -o GlobalKnownHostsFile=/dev/null -o HostKeyAlgorithms=ssh-ed25519\
 -o ForwardAgent=no -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o LogLevel=ERROR"

# Shows what is written to /tmp/log, whoever begins and ends to write.
show() {
  [ -p /tmp/log ] || mkfifo -m 600 /tmp/log
  cat <>/tmp/log >&2 &
}

case "${1:-}" in
  keys)
    for what in party ssh; do
      install -d -m 700 "/keys/$what"
      install -m 600 "/secret/$what"/* "/keys/$what/"
    done
    ;;
  other)
    show
    # Keys lie in a volume of this pod alone, whose mode Kubernetes chooses: not for StrictModes. Nothing but commands
    # passes, and they come from a pod that NetworkPolicy lets in.
    exec /usr/sbin/sshd -D -e -f /dev/null -p 2222 -h /keys/ssh/host -o PidFile=none -o UsePAM=no -o StrictModes=no \
      -o AuthorizedKeysFile=/keys/ssh/authorized_keys -o AuthenticationMethods=publickey -o PasswordAuthentication=no \
      -o KbdInteractiveAuthentication=no -o DisableForwarding=yes -o PermitTTY=no -o PermitUserRC=no -o LogLevel=ERROR
    ;;
  head)
    [ $# -ge 3 ] || fail "head needs the names of two pods or more"
    shift
    own=$1
    shift
    hosts="--host $own"
    for host; do
      hosts="$hosts --host $host"
      # It may still be starting, or be about to come back.
      tries=0
      until words=$($ssh "$host" true 2>&1); do
        [ $((tries % 15)) -ne 0 ] || echo "machine: waits for $host: $words" >&2
        tries=$((tries + 1))
        sleep 2
      done
    done
    show
    # shellcheck disable=SC2086  # words
    exec /usr/local/bin/party-machines --agent "$ssh" --network eth0 --log /tmp/log $hosts -- \
      /usr/local/bin/shoald-machines --config /config/party.textproto --log-format json
    ;;
  *) fail "there is keys, other and head, not '${1:-}'" ;;
esac
