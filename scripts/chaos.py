"""Runs replicas of the control plane and a real etcd with faults between them, and checks the invariants of docs/replicas.md.

chaos.py PLIMSOLL faults [SECONDS, 40] [SEED, 1] [PREVIOUS]  random faults; PREVIOUS is another version for upgrades
chaos.py PLIMSOLL flood [SECONDS, 600]    one client with 1,000 streams and 10,000 node ids; etcd has a quota of 64 MiB
chaos.py PLIMSOLL outage [SECONDS, 900]   etcd is away, and all proxies are replaced in between

Everything runs in network namespaces of its own (root), which end with it. Needs grpcio, etcd and iproute2. The
clock of a replica is stepped with libfaketime if it is installed. Exits with 1 if an invariant is broken.
"""

import asyncio
import base64
import contextlib
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

os.environ["GRPC_VERBOSITY"], os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "NONE", "0"
import grpc  # noqa: E402 (reads these when it is imported)


def own_namespaces():
    """Starts again in a network namespace of its own; the namespaces below end with it."""
    if os.environ.get("PLIMSOLL_CHAOS_INSIDE"):
        return
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        print("SKIPPED chaos: network namespaces need root", file=sys.stderr)
        sys.exit(77)
    os.environ["PLIMSOLL_CHAOS_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])


def honest_fleet():
    """Zone, proxies, requests per second of each: 60/20/20. Shares of an outage are those of a sample: more of them."""
    each, rates = {"faults": (4, (150, 50, 50)), "flood": (4, (150, 50, 50)), "outage": (100, (6, 2, 2))}[MODE]
    return [(zone, each, rate) for zone, rate in zip("abc", rates)]


if len(sys.argv) < 3 or sys.argv[2] not in ("faults", "flood", "outage"):
    sys.exit(__doc__)
own_namespaces()
PLIMSOLL, MODE = os.path.abspath(sys.argv[1]), sys.argv[2]
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else {"faults": 40, "flood": 600, "outage": 900}[MODE]
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
PREVIOUS = os.path.abspath(sys.argv[5]) if len(sys.argv) > 5 else None

REPLICAS, MEMBERS = 3, 1 if MODE == "flood" else 3
QUOTA = (64 if MODE == "flood" else 32) << 20
LEASE = 5
INTERVAL = 1 if MODE == "faults" else 2
ZONES = honest_fleet()
# Once faults have ended: a lease, a move, two intervals, and what a busy machine adds.
SETTLED = LEASE + 7 + 2 * INTERVAL + 30
FAKETIME = next((str(p) for p in pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
WORK = pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Host:
    """A network namespace with one address, and the process in it."""

    def __init__(self, name, subnet):
        self.name, self.address, gateway = name, f"10.87.{subnet}.1", f"10.87.{subnet}.254"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=die_with_parent)
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            time.sleep(0.01)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        ip("address", "add", f"{gateway}/24", "dev", name)
        ip("link", "set", name, "up")
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("ip", "route", "add", "default", "via", gateway)
        self.process = None

    def inside(self, *command):
        subprocess.run(["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *command], check=True, capture_output=True)

    def run(self, command, environment=None):
        log = open(WORK / f"{self.name}.log", "a")
        self.process = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *command],
            stdout=log, stderr=log, env={**os.environ, **(environment or {})}, preexec_fn=die_with_parent,
        )

    def send(self, number):
        self.process.send_signal(number)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()


class Member(Host):
    def __init__(self, index):
        super().__init__(f"m{index}", 10 + index)
        self.data = WORK / f"etcd-{index}"

    def start(self, members):
        cluster = ",".join(f"{one.name}=http://{one.address}:2380" for one in members)
        etcd = shutil.which("etcd") or "/usr/sbin/etcd"
        client, peer = f"http://{self.address}:2379", f"http://{self.address}:2380"
        self.run([etcd, "--name", self.name, "--data-dir", str(self.data), "--initial-cluster", cluster,
                  "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                  "--initial-advertise-peer-urls", peer, "--quota-backend-bytes", str(QUOTA)])

    def ask(self, path, body):
        request = urllib.request.Request(f"http://{self.address}:2379/v3/{path}", json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request, timeout=5))

    def metric(self, name):
        page = urllib.request.urlopen(f"http://{self.address}:2379/metrics", timeout=5).read().decode()
        return next((float(line.split()[-1]) for line in page.splitlines() if line.startswith(name + " ")), 0.0)


class Replica(Host):
    def __init__(self, index):
        super().__init__(f"r{index}", 20 + index)
        self.clock = WORK / f"clock-{index}"
        self.clock.write_text("+0")
        self.binary = PLIMSOLL

    def start(self, binary=None):
        self.binary = binary or self.binary
        fake = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if FAKETIME and MODE == "faults" else {}
        self.run([self.binary, "control", "--config", str(WORK / "control.yaml"), "--replica-id", self.name], fake)

    def get(self, path):
        return json.load(urllib.request.urlopen(f"http://{self.address}:18002{path}", timeout=3))

    def seen(self):
        """Number of nodes, demand and delivered basis points by zone, and the state of the store."""
        fleets = self.get("/api/v1/fleets")["fleets"]
        store = self.get("/api/v1/replicas")["store"]
        edge = next((one for one in fleets if one["fleet"] == "edge"), None)
        if edge is None:
            return {"nodes": 0, "demand": {}, "delivered": {}, "connected": store["connected"]}
        zones = edge["demand"][0]["zones"] if edge["demand"] else []
        return {
            "nodes": store["nodes"],
            "demand": {z["locality"]["zone"]: z["requests_per_second"] for z in zones},
            "delivered": {z["locality"]["zone"]: z["fraction_bp"] for z in edge.get("delivered") or []},
            "connected": store["connected"],
        }

    def metric(self, name):
        page = urllib.request.urlopen(f"http://{self.address}:18002/metrics", timeout=3).read().decode()
        lines = [line for line in page.splitlines() if line.startswith(name)]
        return sum(float(line.split()[-1]) for line in lines)


def field(number, content):
    size, prefix = len(content), bytearray([number << 3 | 2])
    while True:
        prefix.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes(prefix) + content


def integer(number, value):
    out = bytearray([number << 3])
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def node_of(name, zone, fleet=b"edge"):
    return field(1, name.encode()) + field(2, fleet) + field(4, field(2, zone.encode()))


def report_of(name, zone, rate, zones=("a",), fleet=b"edge"):
    """An Envoy's load report of `INTERVAL` seconds."""
    entries = b"".join(field(2, field(1, field(2, one.encode())) + integer(8, rate * INTERVAL // len(zones))) for one in zones)
    stats = field(1, b"orders") + entries + field(4, integer(1, INTERVAL))
    return field(1, node_of(name, zone, fleet)) + field(2, stats)


def channel_to(address):
    # The channels of this process must not share a connection.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.keepalive_time_ms", 5000), ("grpc.keepalive_timeout_ms", 5000)]
    return grpc.aio.insecure_channel(f"{address}:18000", options)


class Proxy:
    """Reports to one replica; to the next one after its stream has ended."""

    def __init__(self, world, name, zone, rate):
        self.world, self.name, self.zone, self.rate = world, name, zone, rate
        # In an outage a replica cannot tell a proxy that ended from one that moved: spread evenly, they are as many.
        self.at = world.names % REPLICAS if MODE == "outage" else world.random.randrange(REPLICAS)
        self.reports = 0
        self.task = asyncio.create_task(self.forever())

    async def forever(self):
        while True:
            replica = self.world.replicas[self.at]
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                async with channel_to(replica.address) as channel:
                    call = channel.stream_stream(LRS)()
                    await call.write(field(1, node_of(self.name, self.zone)))
                    await call.read()
                    while not call.done():
                        await call.write(report_of(self.name, self.zone, self.rate))
                        self.reports += 1
                        await asyncio.sleep(INTERVAL)
            self.at = (self.at + 1) % REPLICAS
            await asyncio.sleep(0.3)

    def move(self, to):
        self.task.cancel()
        self.at = to
        self.task = asyncio.create_task(self.forever())

    def end(self):
        self.task.cancel()


class World:
    def __init__(self):
        self.random = random.Random(SEED)
        ip("link", "set", "lo", "up")
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self.members = [Member(index) for index in range(MEMBERS)]
        self.replicas = [Replica(index) for index in range(REPLICAS)]
        endpoints = ", ".join(f"'{member.address}:2379'" for member in self.members)
        (WORK / "control.yaml").write_text(f"""
listen: 0.0.0.0:18000
insecure: true
admin: ''
read_only: 0.0.0.0:18002
load_reporting: {{interval: {INTERVAL}s}}
demand: {{smoothing_time_constant: 0.1s}}
fleets: {{leave_after: 5s}}
store:
  etcd: {{endpoints: [{endpoints}], lease_ttl: {LEASE}s, compaction_interval: 60s{', max_bytes: 50331648' if MODE == 'flood' else ''}}}
services:
- cluster: {{name: orders}}
  endpoints:
  - {{locality: {{zone: a}}, lb_endpoints: ['10.0.0.1:80']}}
  - {{locality: {{zone: b}}, lb_endpoints: ['10.0.1.1:80']}}
  - {{locality: {{zone: c}}, lb_endpoints: ['10.0.2.1:80']}}
""")
        self.proxies, self.names = [], 0
        self.problems, self.heartbeat = [], {}

    def add_proxy(self, zone, rate):
        self.names += 1
        self.proxies.append(Proxy(self, f"p{self.names}", zone, rate))

    async def start(self):
        for member in self.members:
            member.start(self.members)
        for replica in self.replicas:
            replica.start()
        for zone, count, rate in ZONES:
            for _ in range(count):
                self.add_proxy(zone, rate)
        await self.settled("after the start", 60)

    def truth(self):
        rates = {}
        for proxy in self.proxies:
            rates[proxy.zone] = rates.get(proxy.zone, 0) + proxy.rate
        return rates

    def wrong(self, seen):
        """What is wrong in the eyes of one replica, or None."""
        truth, total = self.truth(), sum(self.truth().values())
        if seen["nodes"] != len(self.proxies):
            return f"it knows {seen['nodes']} nodes of {len(self.proxies)}"
        for zone, rate in truth.items():
            if abs(seen["demand"].get(zone, 0) - rate) > 0.05 * rate:
                return f"it counts {seen['demand']} instead of {truth}"
            if abs(seen["delivered"].get(zone, 0) - 10_000 * rate / total) > 50:
                return f"it delivers {seen['delivered']} under {truth}"
        return None

    async def settled(self, when, seconds=SETTLED):
        """Waits until every replica is right and all deliver the same."""
        end, problem = time.monotonic() + seconds, "nothing was seen"
        while time.monotonic() < end:
            try:
                all_seen = await asyncio.gather(*(asyncio.to_thread(replica.seen) for replica in self.replicas))
                problems = [f"{r.name}: {self.wrong(s)}" for r, s in zip(self.replicas, all_seen) if self.wrong(s)]
                if not problems and any(s["delivered"] != all_seen[0]["delivered"] for s in all_seen):
                    problems = [f"replicas deliver {[s['delivered'] for s in all_seen]}"]
                if not problems:
                    return
                problem = "; ".join(problems)
            except (OSError, KeyError, ValueError) as error:
                problem = f"a replica does not answer: {error!r}"
            await asyncio.sleep(0.2)
        raise SystemExit(f"FAILED {when}, {seconds} s later: {problem}\nlogs in {WORK}")

    async def watch(self):
        """At any time a replica that answers counts no node twice: demand is at most that of all proxies of the last
        half minute."""
        most = [(time.monotonic(), self.truth())]
        while True:
            now = time.monotonic()
            most = [(at, rates) for at, rates in most if at > now - 30] + [(now, self.truth())]
            for replica in self.replicas:
                with contextlib.suppress(OSError, KeyError, ValueError):
                    seen = await asyncio.to_thread(replica.seen)
                    for zone, rate in seen["demand"].items():
                        bound = max(rates.get(zone, 0) for _, rates in most) + self.gone.get(zone, 0)
                        if rate > 1.3 * bound + 1:
                            raise SystemExit(f"FAILED: {replica.name} counts {rate} of zone {zone}, at most {bound} were sent")
            await asyncio.sleep(0.25)

    gone = {}

    # Faults. Each returns after it has healed.

    def blocked(self, source, target, add):
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("rule", "add" if add else "del", "from", source.address, "to", target.address, "blackhole")

    async def partition(self):
        replica, both = self.random.choice(self.replicas), self.random.random() < 0.6
        for add in (True, False):
            for member in self.members:
                self.blocked(replica, member, add)
                if both:
                    self.blocked(member, replica, add)
            if add:
                await asyncio.sleep(self.random.uniform(1, 2 * LEASE))
        return f"{replica.name} cut off from etcd{'' if both else ' (one direction)'}"

    async def partition_member(self):
        member = self.random.choice(self.members)
        for add in (True, False):
            for other in self.members:
                if other is not member:
                    self.blocked(other, member, add)
                    self.blocked(member, other, add)
            if add:
                await asyncio.sleep(self.random.uniform(1, 6))
        return f"{member.name} cut off from the other members"

    async def pause(self):
        host = self.random.choice(self.replicas + self.members)
        host.send(signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(1, 2 * LEASE))
        host.send(signal.SIGCONT)
        return f"{host.name} paused"

    async def slow_member(self):
        """As with a slow disk: each write waits. A process that stops for most of the time is what we can do to a
        static binary."""
        member = self.random.choice(self.members)
        for _ in range(12):
            member.send(signal.SIGSTOP)
            await asyncio.sleep(0.3)
            member.send(signal.SIGCONT)
            await asyncio.sleep(0.1)
        return f"{member.name} slow"

    async def kill_replica(self):
        replica = self.random.choice(self.replicas)
        replica.kill()
        await asyncio.sleep(self.random.uniform(0, LEASE + 3))
        replica.start()
        return f"{replica.name} killed"

    async def kill_member(self):
        member = self.random.choice(self.members)
        member.kill()
        await asyncio.sleep(self.random.uniform(0, 3))
        member.start(self.members)
        return f"{member.name} killed"

    async def upgrade(self):
        new = PREVIOUS if PREVIOUS and self.replicas[0].binary == PLIMSOLL else PLIMSOLL
        for replica in self.replicas:
            replica.kill(signal.SIGTERM)
            replica.start(new)
            await self.settled(f"{replica.name} upgraded")
        return "rolling restart" + (f" to {new}" if PREVIOUS else " (same version: PREVIOUS is not given)")

    async def clock_step(self):
        replica = self.random.choice(self.replicas)
        step = self.random.choice(["+3600", "-3600"])
        replica.clock.write_text(step)
        await asyncio.sleep(3)
        replica.clock.write_text("+0")
        return f"clock of {replica.name} {step} s and back"

    async def compaction(self):
        member = self.random.choice(self.members)
        status = await asyncio.to_thread(member.ask, "kv/range", {"key": "AA==", "count_only": True})
        body = {"revision": status["header"]["revision"], "physical": True}
        with contextlib.suppress(urllib.error.HTTPError):
            await asyncio.to_thread(member.ask, "kv/compaction", body)
        return "all history compacted"

    async def restore(self):
        """All members get the data that they had some seconds ago."""
        for member in self.members:
            member.kill()
        copies = [(member.data, member.data.with_suffix(".backup")) for member in self.members]
        for data, copy in copies:
            shutil.copytree(data, copy)
        for member in self.members:
            member.start(self.members)
        await self.settled("backup taken")
        proxy = self.random.choice(self.proxies)
        proxy.move((proxy.at + 1) % REPLICAS)
        await asyncio.sleep(2)
        for member in self.members:
            member.kill()
        for data, copy in copies:
            shutil.rmtree(data)
            copy.rename(data)
        for member in self.members:
            member.start(self.members)
        return "backup restored"

    async def no_space(self):
        """Another user of etcd fills it; a person compacts, defragments and disarms."""
        junk = base64.b64encode(os.urandom(1 << 20)).decode()
        leader = self.members[0]
        for index in range(2 * (QUOTA >> 20)):
            key = base64.b64encode(f"/other/{index % 3}".encode()).decode()
            try:
                await asyncio.to_thread(leader.ask, "kv/put", {"key": key, "value": junk})
            except urllib.error.HTTPError:
                break
        await asyncio.sleep(4)
        key, end = (base64.b64encode(one).decode() for one in (b"/other/", b"/other0"))
        with contextlib.suppress(urllib.error.HTTPError):
            await asyncio.to_thread(leader.ask, "kv/deleterange", {"key": key, "range_end": end})
        await self.compaction()
        for member in self.members:
            await asyncio.to_thread(member.ask, "maintenance/defragment", {})
        alarms = (await asyncio.to_thread(leader.ask, "maintenance/alarm", {"action": "GET"})).get("alarms", [])
        for alarm in alarms:
            alarm = {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]}
            await asyncio.to_thread(leader.ask, "maintenance/alarm", alarm)
        return f"etcd without space ({len(alarms)} alarms)"

    async def replace_proxies(self):
        for proxy in self.random.sample(self.proxies, len(self.proxies) // 2):
            proxy.end()
            self.proxies.remove(proxy)
            self.add_proxy(proxy.zone, proxy.rate)
        return "half of the proxies replaced"

    async def move_proxies(self):
        for proxy in self.proxies:
            proxy.move(self.random.randrange(REPLICAS))
        return "proxies moved"


async def faults(world):
    kinds = [world.partition, world.pause, world.kill_replica, world.move_proxies, world.replace_proxies, world.kill_member,
             world.partition_member, world.slow_member, world.compaction, world.no_space, world.restore, world.upgrade]
    if FAKETIME:
        kinds.append(world.clock_step)
    else:
        print("SKIPPED clock steps: libfaketime is not installed", file=sys.stderr)
    watching = asyncio.create_task(world.watch())
    end, count = time.monotonic() + SECONDS, 0
    order = []
    while time.monotonic() < end:
        # Each kind once before any comes again; sometimes two at a time.
        order = order or world.random.sample(kinds, len(kinds))
        now = [order.pop()]
        alone = (world.restore, world.upgrade, world.no_space)
        if now[0] not in alone and order and order[-1] not in alone and world.random.random() < 0.4:
            now.append(order.pop())
        rates = {}
        for proxy in world.proxies:
            rates[proxy.zone] = rates.get(proxy.zone, 0) + proxy.rate
        # Proxies that end during a fault may count until it has healed.
        world.gone = rates if world.replace_proxies in now else {}
        began = time.monotonic()
        told = await asyncio.gather(*(fault() for fault in now))
        healed = time.monotonic()
        await world.settled(" and ".join(told))
        world.gone = {}
        count += len(now)
        print(f"{' and '.join(told)}: {healed - began:.1f} s, right {time.monotonic() - healed:.1f} s later", flush=True)
        if watching.done():
            watching.result()
    watching.cancel()
    print(f"{count} faults, seed {SEED}: the invariants hold")


async def attack(addresses):
    """One client, in a process of its own: a thousand streams at all replicas, and ids that it changes."""
    streams, ids, zones = 1000, 10_000, tuple(f"zone-{index}" for index in range(60))
    channels = [channel_to(addresses[index % REPLICAS]) for index in range(streams // 10)]
    counts = {"reports": 0, "refused": 0}

    async def forever(index):
        generation = 0
        while True:
            name = f"liar-{(index + streams * generation) % ids}"
            try:
                call = channels[index // 10].stream_stream(LRS)()
                await call.write(field(1, node_of(name, "a", b"liars")))
                for _ in range(20):
                    await call.write(report_of(name, "a", 60, zones, b"liars"))
                    counts["reports"] += 1
                call.cancel()
            except (grpc.RpcError, asyncio.InvalidStateError):
                counts["refused"] += 1
                await asyncio.sleep(0.1)
            generation += 1

    tasks = [asyncio.create_task(forever(index)) for index in range(streams)]
    while tasks:
        await asyncio.sleep(1)
        print(json.dumps(counts), flush=True)


async def flood(world):
    """Watches honest proxies and new ones beside `attack`."""
    log = open(WORK / "attack.log", "w")
    addresses = [replica.address for replica in world.replicas]
    environment = {**os.environ, "PLIMSOLL_CHAOS_ATTACK": json.dumps(addresses)}
    attacker = subprocess.Popen([sys.executable, *sys.argv], stdout=log, env=environment, preexec_fn=die_with_parent)
    end, count = time.monotonic() + SECONDS, 0
    start, moved, largest = 0.0, 0.0, 0.0
    truth, total = world.truth(), sum(world.truth().values())
    member = world.members[0]
    while time.monotonic() < end:
        await asyncio.sleep(1)
        count += 1
        replica = world.replicas[count % REPLICAS]
        began = time.monotonic()
        async with channel_to(replica.address) as channel:
            call = channel.stream_stream(ADS)()
            await call.write(field(2, node_of(f"new-{count}", "b")) + field(4, CLUSTERS.encode()))
            answer = await asyncio.wait_for(call.read(), 30)
            call.cancel()
        if answer is grpc.aio.EOF:
            raise SystemExit("FAILED: a new proxy was refused")
        start = max(start, time.monotonic() - began)
        delivered = (await asyncio.to_thread(replica.seen))["delivered"]
        off = max(abs(delivered.get(zone, 0) - 10_000 * rate / total) for zone, rate in truth.items())
        moved = max(moved, off / 100)
        largest = max(largest, await asyncio.to_thread(member.metric, "etcd_mvcc_db_total_size_in_bytes"))
        if count % 10 == 0 or time.monotonic() > end:
            sent = (WORK / "attack.log").read_text().split("\n")[-2:][0]
            print(f"{sent}, etcd {largest / 2**20:.1f} MiB, start {start:.2f} s, {moved:.2f} points", flush=True)
    attacker.kill()
    alarms = (await asyncio.to_thread(member.ask, "maintenance/alarm", {"action": "GET"})).get("alarms", [])
    print(f"{SECONDS} s: etcd at most {largest / 2**20:.1f} of 64 MiB, alarms {alarms}; new proxies served within "
          f"{start:.2f} s; fractions of honest proxies moved by {moved:.2f} points")
    if alarms or start > 2 or moved > 0.5:
        raise SystemExit("FAILED: the bar of one client that floods")


async def outage(world):
    """No member of etcd runs; one proxy after the other is replaced by one with a new id, zone by zone."""
    for index, proxy in enumerate(world.proxies):
        proxy.move(index % REPLICAS)
    await asyncio.sleep(10)
    await world.settled("spread evenly")
    for member in world.members:
        member.kill()
    began, worst = time.monotonic(), 0.0
    old = sorted(world.proxies, key=lambda proxy: proxy.zone)
    pause, replaced = SECONDS / (len(old) + 2), 0
    truth, total = world.truth(), sum(world.truth().values())
    while (away := time.monotonic() - began) < SECONDS:
        if away > pause * (replaced + 1) and replaced < len(old):
            proxy = old[replaced]
            proxy.end()
            world.proxies.remove(proxy)
            world.add_proxy(proxy.zone, proxy.rate)
            replaced += 1
        for replica in world.replicas:
            seen = await asyncio.to_thread(replica.seen)
            counted = sum(seen["demand"].values())
            for zone, rate in truth.items():
                error = abs(seen["demand"].get(zone, 0) / counted - rate / total) if counted else 1.0
                if error > worst:
                    worst = error
                    print(f"{away:.0f} s, {replaced} replaced: {replica.name} counts {seen['demand']}, {100 * error:.1f} points off", flush=True)
        await asyncio.sleep(1)
    for member in world.members:
        member.start(world.members)
    await world.settled("etcd is back", 60)
    print(f"etcd away for {SECONDS} s, {replaced} proxies replaced: shares at most {100 * worst:.1f} points off")
    if worst > 0.05:
        raise SystemExit("FAILED: the bar of an outage")


async def main():
    if "PLIMSOLL_CHAOS_ATTACK" in os.environ:
        return await attack(json.loads(os.environ["PLIMSOLL_CHAOS_ATTACK"]))
    world = World()
    await world.start()
    await {"faults": faults, "flood": flood, "outage": outage}[MODE](world)


try:
    asyncio.run(main())
finally:
    if sys.exc_info()[0] is None:
        shutil.rmtree(WORK, ignore_errors=True)
