#!/usr/bin/env bash
# Installs, starts, upgrades and removes the Debian package in a clean Debian with its own systemd, while requests run
# through the proxy: test-package.sh BINARY. Needs root, and a mirror of Debian for the first run (three minutes); the
# clean system is kept in target/package-root and not changed by a run.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

binary=$(realpath "$1")
target=$(realpath "${CARGO_TARGET_DIR:-target}")
clean=$target/package-root
work=$(mktemp -d)
root=$work/root
system=""
init=""
backend=""
load=""

fail() {
  echo "test-package: $*" >&2
  [[ -z $init ]] || in_system journalctl --no-pager -n 40 >&2 || true
  exit 1
}

finish() {
  local pid
  for pid in "$load" "$backend" "$system"; do
    [[ -z $pid ]] || kill -9 "$pid" 2>/dev/null || true
  done
  # The mounts are those of the namespace of the system, and end with it.
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'echo "test-package: line $LINENO failed" >&2; cat "$work/dpkg.log" >&2 2>/dev/null || true' ERR

# bootstrap: a Debian with nothing but systemd, and what this test and lintian need.
bootstrap() {
  local tools=$target/release-tools
  [[ -e $clean/.complete ]] && return
  rm -rf "$clean"
  DEBOOTSTRAP_DIR=$tools/usr/share/debootstrap "$tools/usr/sbin/debootstrap" --variant=minbase \
    --include=systemd,systemd-sysv,ca-certificates,curl,man-db bookworm "$clean" "$(mirror)" >"$work/debootstrap.log"
  chroot "$clean" apt-get install -qq -y --no-install-recommends lintian >"$work/apt.log" 2>&1
  # Nothing here is for this system: its mounts come from the test.
  chroot "$clean" systemctl mask systemd-udevd.service systemd-networkd.service systemd-resolved.service \
    systemd-timesyncd.service getty.target console-getty.service systemd-logind.service 2>/dev/null
  touch "$clean/.complete"
}

mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | sed -n 1p
}

# Runs a command in the system.
in_system() {
  nsenter --target "$init" --mount --pid --uts --ipc --cgroup --root --wd -- "$@"
}

start_system() {
  mkdir -p "$root" "$work/upper" "$work/overlay"
  cat >"$work/start.sh" <<EOF
mount -t tmpfs tmpfs $work/upper
mkdir $work/upper/{upper,work}
mount -t overlay overlay -o lowerdir=$clean,upperdir=$work/upper/upper,workdir=$work/upper/work $root
mount -t proc proc $root/proc
mount -t tmpfs tmpfs $root/run
mount --rbind /sys $root/sys
mount --rbind /dev $root/dev
mkdir $root/packages
mount --bind $work/packages $root/packages
# Not chroot: what runs in one may create no user namespace, which units with PrivateUsers need.
cd $root
mkdir old
pivot_root . old
umount -l /old
exec /usr/bin/env -i container=docker PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
EOF
  setsid unshare --mount --pid --fork --kill-child --uts --ipc --cgroup --propagation private bash "$work/start.sh" \
    >"$work/system.log" 2>&1 </dev/null &
  system=$!
  local tries
  for tries in $(seq 100); do
    init=$(pgrep -P "$system" || true)
    if [[ -n $init ]] && in_system systemctl is-system-running --wait >/dev/null 2>&1; then
      return
    fi
    if [[ -n $init ]] && [[ $(in_system systemctl is-system-running 2>/dev/null) == degraded ]]; then
      return
    fi
    sleep 0.2
  done
  cat "$work/system.log" >&2
  fail "the system does not start"
}

# Ports that nobody uses, in a file that both sides read.
free_ports() {
  python3 - "$1" <<'EOF'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
EOF
}

configure() {
  in_system tee /etc/plimsoll/control.yaml >/dev/null <<EOF
listen: 127.0.0.1:$1
admin: 127.0.0.1:$2
services:
- cluster: {name: orders}
  mode: SHADOW
  endpoints:
  - {locality: {zone: zone-a}, lb_endpoints: ['127.0.0.1:$5']}
EOF
  in_system tee /etc/plimsoll/proxy.yaml >/dev/null <<EOF
node: {id: p1, cluster: gateway, locality: {zone: zone-a}}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: $4}}}
static_resources:
  listeners:
  - name: main
    address: {socket_address: {address: 127.0.0.1, port_value: $3}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: main
          route_config: {virtual_hosts: [{name: all, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: orders}}]}]}
          http_filters: [{name: router, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
  clusters:
  - name: orders
    type: STATIC
    load_assignment:
      cluster_name: orders
      endpoints: [{locality: {zone: zone-a}, lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $5}}}}]}]
EOF
  in_system mkdir -p /etc/systemd/system/plimsoll-proxy.socket.d
  in_system tee /etc/systemd/system/plimsoll-proxy.socket.d/ports.conf >/dev/null <<EOF
[Socket]
ListenStream=
ListenStream=127.0.0.1:$3
ListenStream=127.0.0.1:$4
EOF
  in_system systemctl daemon-reload
}

start_backend() {
  python3 - "$1" <<'EOF' &
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
EOF
  backend=$!
}

# Sends requests, each on a connection of its own, until the file `stop` is there; prints how many failed of how many.
start_load() {
  python3 - "$1" "$work/stop" >"$work/load" <<'EOF' &
import os, sys, time, urllib.request

failed = sent = 0
while not os.path.exists(sys.argv[2]):
    sent += 1
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=30).read()
    except Exception as error:
        failed += 1
        print(error, file=sys.stderr)
    time.sleep(0.01)
print(failed, sent)
EOF
  load=$!
}

is_active() {
  [[ $(in_system systemctl is-active "$1") == active ]]
}

bootstrap
first=$("$binary" -V | cut -d' ' -f2)
second=$first.1
mkdir -p "$work/packages"
strip -o "$work/plimsoll" "$binary"
for version in "$first" "$second"; do
  PLIMSOLL_COMPRESSION=1 PLIMSOLL_VERSION=$version scripts/artifacts.sh "$work/plimsoll" "$work/packages" >"$work/artifacts.log" 2>&1 ||
    { cat "$work/artifacts.log" >&2; exit 1; }
done
(cd "$work/packages" && sha256sum --quiet -c SHA256SUMS)
deb() {
  echo "/packages/plimsoll_$1_$(dpkg --print-architecture).deb"
}
start_system
in_system lintian --fail-on error "$(deb "$first")"

read -r xds admin http proxy_admin upstream < <(free_ports 5)
in_system dpkg -i "$(deb "$first")" >"$work/dpkg.log"
! is_active plimsoll-control || fail "the installation starts a service"
in_system man -w plimsoll-control >/dev/null || fail "no manual page"
in_system bash -c 'source /usr/share/bash-completion/completions/plimsoll && complete -p plimsoll' >/dev/null
configure "$xds" "$admin" "$http" "$proxy_admin" "$upstream"
start_backend "$upstream"
in_system systemctl enable --quiet --now plimsoll-control.service plimsoll-proxy.socket plimsoll-proxy.service ||
  fail "the services do not start"
is_active plimsoll-control || fail "the control plane does not start"
is_active plimsoll-proxy || fail "the proxy does not start"
start_load "$http"
curl -fsS --retry 20 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$admin/readyz" >/dev/null
before=$(in_system systemctl show -P MainPID plimsoll-control)
in_system dpkg -i "$(deb "$second")" >"$work/dpkg.log"
curl -fsS --retry 20 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$admin/readyz" >/dev/null
[[ $(in_system systemctl show -P MainPID plimsoll-control) != "$before" ]] || fail "the upgrade restarts nothing"
in_system systemctl restart plimsoll-proxy.service
in_system grep -q 'zone-a' /etc/plimsoll/control.yaml || fail "the upgrade replaced a configuration"
starts=$(in_system plimsoll audit | grep -c ' start: started')
((starts == 2)) || fail "the audit has $starts starts"
sleep 1
touch "$work/stop"
wait "$load"
load=""
read -r failed sent <"$work/load"
((failed == 0 && sent > 50)) || fail "$failed of $sent requests failed"

in_system dpkg -r plimsoll >"$work/dpkg.log"
! is_active plimsoll-control || fail "a removed control plane runs"
in_system test -e /etc/plimsoll/control.yaml || fail "the removal lost a configuration"
in_system dpkg -P plimsoll >"$work/dpkg.log"
! in_system test -e /var/lib/plimsoll || fail "the purge leaves the audit"
! in_system test -e /etc/plimsoll/control.yaml || fail "the purge leaves a configuration"
echo "test-package: installed, upgraded with 0 of $sent requests failed, removed"
