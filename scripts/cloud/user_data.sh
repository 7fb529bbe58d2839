#!/bin/bash
# The first boot of a machine of an experiment (scripts/aws fills in what stands in braces). Nothing in here is
# secret, and nothing secret is made here but the host key, by the system itself.
set -euo pipefail

# First of all the end: the machine goes for good when it is switched off. The timer outlives a restart.
cat >/etc/systemd/system/shoal-end.service <<END
[Unit]
Description=The paid time is over
[Service]
Type=oneshot
ExecStart=/bin/systemctl --no-block poweroff
END
cat >/etc/systemd/system/shoal-end.timer <<END
[Timer]
OnCalendar=$(date -u -d '+{paid_minutes} minutes' '+%Y-%m-%d %H:%M:%S UTC')
AccuracySec=1s
Persistent=true
[Install]
WantedBy=timers.target
END
systemctl daemon-reload
systemctl enable --now shoal-end.timer

# No secret reaches a disk by swap or by a core file.
swapoff -a
echo '* hard core 0' >/etc/security/limits.d/shoal.conf

# What is sent beyond the paid traffic is dropped. After a restart too, but its count begins anew.
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends nftables
cat >/etc/systemd/system/shoal-traffic.nft <<END
table inet shoal {{
  chain sent {{
    type filter hook output priority 0;
    oifname != "lo" quota over {traffic_mib} mbytes drop
  }}
}}
END
cat >/etc/systemd/system/shoal-traffic.service <<END
[Unit]
Description=The paid traffic
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft -f /etc/systemd/system/shoal-traffic.nft
[Install]
WantedBy=sysinit.target
END
systemctl daemon-reload
systemctl enable --now shoal-traffic.service

install -d -m 700 -o admin -g admin /home/admin/.ssh
echo '{public_key}' >/home/admin/.ssh/authorized_keys
chown admin:admin /home/admin/.ssh/authorized_keys
chmod 600 /home/admin/.ssh/authorized_keys

# Who may read the console knows by this which key to expect.
echo "shoal-host-key {identifier} $(cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub)" >/dev/console
