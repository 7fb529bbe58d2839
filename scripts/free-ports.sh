# For tests, which source it: free_ports COUNT sets port, so that no other test is given this port or the next ones,
# at most ten together. This shell and the processes that it starts hold the lock of their block (FreePorts in
# src/sim/processes.h) as file 9.

free_ports() {
  local count=$1 locks=/tmp/shoal-ports-$UID next
  mkdir -p -m 700 "$locks"
  while :; do
    port=$((20000 + RANDOM % 1200 * 10))
    exec 9>"$locks/$port"
    flock --nonblock 9 || continue
    for ((next = port; next < port + count; ++next)); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$next") 2>/dev/null; then continue 2; fi
    done
    return
  done
}
