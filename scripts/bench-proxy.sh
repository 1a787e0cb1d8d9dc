#!/usr/bin/env bash
# Compares four proxies on this machine: Plimsoll, Envoy, HAProxy, nginx. One worker each, 1 KiB
# responses, keep-alive, HTTP/1.1 and HTTP/2 (POST of 32 bytes with gRPC's content type).
#
# The proxy runs on core 0, load generator and backend on core 1. CPU per request is the CPU time of the
# proxy's processes (from /proc) divided by the requests, which is valid even if the load generator is
# the bottleneck. Latencies are measured at 70 % of Envoy's rate. Every number is the median of RUNS runs,
# interleaved between the proxies.
#
# Usage: [BEFORE=path of an earlier plimsoll] scripts/bench-proxy.sh [SECONDS per run, 5] [RUNS, 3]
# With BEFORE, that build is measured in the same run, as "before".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-5}
runs=${2:-3}
target=${CARGO_TARGET_DIR:-target}
envoy=$target/peers/venv/bin/envoy
plimsoll=$target/release/plimsoll
before=${BEFORE:-}
work=$(mktemp -d)
pids=()

cleanup() {
  local pid
  for pid in "${pids[@]}"; do
    kill -TERM -- "-$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap cleanup EXIT

# start NAME COMMAND...: starts a process group, on core 0 unless CORE is set.
start() {
  local name=$1
  shift
  setsid taskset -c "${CORE:-0}" "$@" >"$work/$name.log" 2>&1 &
  pids+=($!)
  echo $! >"$work/$name.pid"
}

# wait_port PORT
wait_port() {
  for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  echo "nothing listens on $1" >&2
  tail -n 5 "$work"/*.log >&2
  exit 1
}

# Ports: backend 9101 (HTTP/1.1) and 9102 (HTTP/2); each proxy has one port per version.
body=$(head -c 1024 /dev/zero | tr '\0' x)
hcm=type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
router=type.googleapis.com/envoy.extensions.filters.http.router.v3.Router

nginx_base() { # nginx_base NAME
  cat <<EOF
worker_processes 1; daemon off; pid $work/$1.nginx.pid; error_log $work/$1.error.log;
events { worker_connections 8192; }
EOF
}

{
  nginx_base backend
  cat <<EOF
http { access_log off; keepalive_requests 1000000000; default_type text/plain;
  server { listen 127.0.0.1:9101 reuseport; location / { return 200 "$body"; } }
  server { listen 127.0.0.1:9102 http2 reuseport; location / { return 200 "$body"; } } }
EOF
} >"$work/backend.conf"

{
  nginx_base nginx
  cat <<EOF
http { access_log off; keepalive_requests 1000000000; client_body_in_single_buffer on;
  upstream one { server 127.0.0.1:9101; keepalive 1024; keepalive_requests 1000000000; }
  server { listen 127.0.0.1:9401; location / { proxy_pass http://one; proxy_http_version 1.1; proxy_set_header Connection ""; } } }
EOF
} >"$work/nginx.conf"

cat >"$work/haproxy.cfg" <<EOF
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend one
  bind 127.0.0.1:9301
  default_backend one
frontend two
  bind 127.0.0.1:9302 proto h2
  default_backend two
backend one
  server a 127.0.0.1:9101
backend two
  server a 127.0.0.1:9102 proto h2
EOF

# bootstrap HTTP1_PORT HTTP2_PORT ADMIN_PORT: prints a bootstrap for Envoy and for plimsoll proxy.
bootstrap() {
  local name port
  echo "admin: {address: {socket_address: {address: 127.0.0.1, port_value: $3}}}"
  echo "static_resources:"
  echo "  listeners:"
  for name in one two; do
    port=$1
    [[ $name == two ]] && port=$2
    cat <<EOF
  - name: $name
    address: {socket_address: {address: 127.0.0.1, port_value: $port}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          '@type': $hcm
          stat_prefix: $name
          route_config: {virtual_hosts: [{name: all, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: $name}}]}]}
          http_filters: [{name: router, typed_config: {'@type': $router}}]
EOF
  done
  echo "  clusters:"
  for name in one two; do
    port=9101
    [[ $name == two ]] && port=9102
    echo "  - name: $name"
    echo "    type: STATIC"
    [[ $name == two ]] && cat <<EOF
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
EOF
    echo "    circuit_breakers: {thresholds: [{max_connections: 8192, max_pending_requests: 8192, max_requests: 8192}]}"
    echo "    load_assignment: {cluster_name: $name, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $port}}}}]}]}"
  done
}

bootstrap 9201 9202 9203 >"$work/envoy.yaml"
bootstrap 9501 9502 9503 >"$work/plimsoll.yaml"
head -c 32 /dev/zero | tr '\0' x >"$work/message"

CORE=1 start backend nginx -c "$work/backend.conf"
start envoy "$envoy" -c "$work/envoy.yaml" --concurrency 1 -l error
start haproxy haproxy -db -f "$work/haproxy.cfg"
start nginx nginx -c "$work/nginx.conf"
start plimsoll "$plimsoll" proxy -c "$work/plimsoll.yaml" --workers 1
if [[ -n $before ]]; then
  bootstrap 9601 9602 9603 >"$work/before.yaml"
  start before "$before" proxy -c "$work/before.yaml" --workers 1
  wait_port 9601
fi
for port in 9101 9102 9201 9301 9401 9501; do wait_port "$port"; done

python3 scripts/bench-proxy.py "$work" "$seconds" "$runs"
