# To be sourced: a clean Debian 12 in the folder $root, and commands in it. Needs to be root, mmdebstrap (scripts/setup
# --package) and the right to make namespaces.

# make_root PACKAGE..: from the mirror that MIRROR names (mmdebstrap's default).
make_root() {
  local packages=$*
  mmdebstrap --quiet --variant=minbase --include="${packages// /,}" bookworm "$root" ${MIRROR:+"$MIRROR"} >&2
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
}

# inside NETWORK COMMAND..: runs it in the root, where nothing else runs. NETWORK is `net` for that of this machine, or `alone`.
inside() {
  local alone=()
  [ "$1" = net ] || alone=(--net)
  shift
  # shellcheck disable=SC2016  # for the shell inside
  unshare --mount --pid --ipc --uts --fork --kill-child "${alone[@]}" sh -c '
    set -e
    root=$1; shift
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/run"
    mount -t sysfs -o ro sysfs "$root/sys"
    mkdir -p "$root/dev/shm" "$root/dev/pts"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ip link set lo up 2>/dev/null || true
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive TERM=dumb "$@"' sh "$root" "$@"
}
