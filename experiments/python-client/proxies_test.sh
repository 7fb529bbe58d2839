#!/usr/bin/env bash
# Requests that hide another one behind proxies: one of the test's own, which forwards framing that it does not understand, and
# nginx and HAProxy as Debian packages them, with the lines of docs/door.md. Through these two lookups go as well.
set -euo pipefail
source experiments/python-client/chain.sh
proxies=$deps/proxies

squares
create_chain 8 --pad 8 --rounds "$rounds" -- --name squares --row-bytes 128
scripts/local-chain start "$chain"
# The proxies' address is none of a client: else they would name none.
from=127.0.0.9
configure_door 'proxies { addresses: "'$from'" }
rates { address_requests: 1000000 connection_requests: 1000000 }'
sed -i '/^certificate_file\|^private_key_file/d' "$chain/door.textproto"
start_door
timeout 600 "$python" "$here/proxies.py" lax "127.0.0.1:$((port + 3))" "$from" || fail "through the lax proxy"

# The blocks of docs/door.md, with this test's ports and files.
from_page() {  # from_page LANGUAGE PORT
  sed -n "/^<!-- $1 -->/,/^<!-- end -->/{s/^    //p}" docs/door.md |
    sed "s/\(server door .*\):7443/\1:7443 source $from/; s/^\( *\)proxy_pass .*/&\n\1proxy_bind $from;/; s/:7443/:$((port + 3))/; s/ :\?443 / 127.0.0.1:$2 /; s|/etc/ssl/door|$chain/door|"
}
cat "$chain/door.pem" "$chain/door.key" >"$chain/door.both"
make_nginx() {
  mkdir -p "$chain/nginx"
  cat >"$chain/nginx.conf" <<END
daemon off;
$(if [ "$(id -u)" = 0 ]; then echo 'user root;'; fi)
pid $chain/nginx/pid;
error_log stderr notice;
worker_processes 1;
events {}
http {
  access_log off;
$(for name in client_body proxy fastcgi uwsgi scgi; do echo "  ${name}_temp_path $chain/nginx/$name;"; done)
$(from_page nginx "$1")
}
END
  proxy=("$proxies/usr/sbin/nginx" -p "$chain/nginx" -c "$chain/nginx.conf" -e stderr)
  proxy_says='start worker process'
}
make_haproxy() {
  cat >"$chain/haproxy.conf" <<END
global
  log stderr format raw local0
defaults
  mode http
  timeout connect 5s
  timeout client 120s
  timeout server 120s
$(from_page haproxy "$1")
END
  proxy=(env LD_LIBRARY_PATH="$(echo "$proxies"/usr/lib/*-linux-gnu)" "$proxies/usr/sbin/haproxy" -W -f "$chain/haproxy.conf")
  proxy_says='Loading success'
}
want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)')
at=$((port + 4))
for name in nginx haproxy; do
  if [ ! -x "$proxies/usr/sbin/$name" ]; then
    echo "proxies_test: skipped: no $proxies/usr/sbin/$name; run: scripts/setup --test" >&2
    continue
  fi
  "make_$name" "$at"
  start "$name" "$proxy_says" "${proxy[@]}"
  for how in "" --post; do
    # shellcheck disable=SC2086  # none, or one
    got=$(through_door door.py $how "127.0.0.1:$at" key-7 no-such-key) || fail "the lookup through $name failed ($how)"
    [ "$got" = "$want" ] || fail "another answer through $name: $got"
  done
  timeout 600 "$python" "$here/proxies.py" at "127.0.0.1:$at" "$chain/door.pem" || fail "through $name"
  at=$((at + 1))
done
