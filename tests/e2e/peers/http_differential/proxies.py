"""Starts Envoy, nginx, HAProxy and Plimsoll as reverse proxies with comparable settings.

Every proxy has listeners per lane: `plain` with its defaults, and `edge` with path normalization. A
lane has a backend of its own, so that cases which run at the same time do not mix. Where a proxy
allows it, listeners are Unix sockets in the working directory: these need no free ports.
"""

import ctypes
import json
import signal
import subprocess

KINDS = ("plain", "edge")

NORMALIZATION = {
    "normalize_path": True,
    "merge_slashes": True,
    "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
}


def _die_with_parent():
    """Linux: the child is killed when the driver dies, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def start(name, arguments, stdout=None):
    """Starts a program with its output in NAME.log."""
    log = open(f"{name}.log", "wb")
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=stdout or log,
        stderr=log,
        preexec_fn=_die_with_parent,
    )


def _manager(kind, lane):
    filters = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{filters}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": f"{kind}-{lane}",
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{filters}.http.router.v3.Router"}}
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "any",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/"}, "route": {"cluster": f"backend-{lane}"}}
                    ],
                }
            ]
        },
    }
    if kind == "edge":
        manager.update(NORMALIZATION)
    return manager


def _envoy_form(ports, address):
    """A configuration in Envoy's form, which Plimsoll also reads."""
    listeners, clusters = [], []
    for lane, port in enumerate(ports):
        for kind in KINDS:
            name = f"{kind}-{lane}"
            chain = {"filters": [{"name": "http", "typed_config": _manager(kind, lane)}]}
            listeners.append(
                {"name": name, "address": address(name), "filter_chains": [chain]}
            )
        name = f"backend-{lane}"
        host = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": host}}]}]
        clusters.append(
            {
                "name": name,
                "type": "STATIC",
                "connect_timeout": "5s",
                "load_assignment": {"cluster_name": name, "endpoints": endpoints},
            }
        )
    return {"static_resources": {"listeners": listeners, "clusters": clusters}}


def start_envoy(binary, ports):
    config = _envoy_form(ports, lambda name: {"pipe": {"path": f"envoy-{name}"}})
    for listener in config["static_resources"]["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        # By default Envoy closes a connection one second after its last answer.
        manager["delayed_close_timeout"] = "0s"
    with open("envoy.json", "w") as file:
        json.dump(config, file)
    options = ["--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
    process = start("envoy", [binary, "-c", "envoy.json", *options])
    return process, _sockets("envoy", ports, separate_http2=False)


def start_plimsoll(binary, ports):
    free = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    config = _envoy_form(ports, lambda _: free)
    config["admin"] = {"address": free}
    with open("plimsoll.json", "w") as file:
        json.dump(config, file)
    arguments = [binary, "proxy", "-c", "plimsoll.json", "--workers", "1"]
    process = start("plimsoll", arguments, stdout=subprocess.PIPE)
    addresses = {}
    for line in process.stdout:
        words = line.decode().split()
        if words[:1] != ["listener"]:
            break
        host, port = words[3].rsplit(":", 1)
        addresses[words[1]] = (host, int(port))
    lanes = range(len(ports))
    return process, {
        (kind, http2, lane): addresses[f"{kind}-{lane}"]
        for kind in KINDS
        for http2 in (False, True)
        for lane in lanes
    }


def start_nginx(binary, ports):
    servers = []
    for lane, port in enumerate(ports):
        for kind in KINDS:
            # With a path, nginx forwards the path as it has normalized it.
            path = "/" if kind == "edge" else ""
            servers.append(
                f"""
  server {{
    listen unix:nginx-{kind}-{lane};
    listen unix:nginx-{kind}-{lane}-h2 http2;
    location / {{
      proxy_pass http://127.0.0.1:{port}{path};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }}
  }}"""
            )
    with open("nginx.conf", "w") as file:
        file.write(
            f"""daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path nginx-body;
  proxy_temp_path nginx-proxy;
  fastcgi_temp_path nginx-fastcgi;
  uwsgi_temp_path nginx-uwsgi;
  scgi_temp_path nginx-scgi;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
{"".join(servers)}
}}
"""
        )
    process = start("nginx", [binary, "-e", "stderr", "-p", ".", "-c", "nginx.conf"])
    return process, _sockets("nginx", ports, separate_http2=True)


def start_haproxy(binary, ports):
    normalization = "".join(
        f"  http-request normalize-uri {rule}\n"
        for rule in (
            "percent-decode-unreserved",
            "path-strip-dot",
            "path-strip-dotdot full",
            "path-merge-slashes",
        )
    )
    sections = [
        "global\n  expose-experimental-directives\n  maxconn 500\n"
        "defaults\n  mode http\n  retries 0\n"
        "  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n"
    ]
    for lane, port in enumerate(ports):
        for kind in KINDS:
            socket = f"haproxy-{kind}-{lane}"
            sections.append(
                f"frontend {kind}{lane}\n  bind unix@{socket}\n  bind unix@{socket}-h2 proto h2\n"
                f"{normalization if kind == 'edge' else ''}  default_backend backend{lane}\n"
            )
        sections.append(f"backend backend{lane}\n  server host 127.0.0.1:{port}\n")
    with open("haproxy.cfg", "w") as file:
        file.write("".join(sections))
    process = start("haproxy", [binary, "-db", "-f", "haproxy.cfg"])
    return process, _sockets("haproxy", ports, separate_http2=True)


def _sockets(name, ports, separate_http2):
    return {
        (kind, http2, lane): f"{name}-{kind}-{lane}" + ("-h2" if http2 and separate_http2 else "")
        for kind in KINDS
        for http2 in (False, True)
        for lane in range(len(ports))
    }


STARTERS = {
    "plimsoll": start_plimsoll,
    "envoy": start_envoy,
    "nginx": start_nginx,
    "haproxy": start_haproxy,
}
