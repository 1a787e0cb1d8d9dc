//! Log lines of the control plane.

plimsoll_core::log_lines! {
    /// A node could not use a resource that it was sent. The resources it had before stay in use.
    UPDATE_REJECTED = Warn,
        "data plane rejected an update (NACK) and keeps its previous configuration",
        "Correct the service in the configuration of the control plane; `reason` names the field.";
    /// The heartbeat of fractions is longer than a cluster's `staleness_threshold` allows. Between
    /// heartbeats, fractions are confirmed so that they do not expire.
    HEARTBEAT_SHORTENED = Warn,
        "heartbeat interval is too long for a staleness threshold; shortened",
        "Lower `heartbeat` in the configuration, or raise `staleness_threshold`.";
    /// The control plane repeats traffic fractions at every heartbeat. The default interval is
    /// longer than a cluster's `staleness_threshold` allows, so they are confirmed in between.
    DEFAULT_HEARTBEAT_SHORTENED = Info,
        "default heartbeat shortened to suit a staleness threshold", "";
    /// `field` of a service of a relay asks for measured demand, but the policy of the management
    /// server behind it is one that demand cannot steer.
    DEMAND_WITHOUT_EFFECT = Warn,
        "service asks for measured demand, which cannot steer its policy",
        "Remove `field` from the service, or change its policy; see `reason`.";
    /// A setting of the configuration changed. Lines of one change have the same `number`, which
    /// `/api/v1/audit` has too. `by` is who or what changed it, `source` where it is written.
    SETTING_CHANGED = Info, "setting changed", "";
    /// A service of the configuration at the start.
    SETTING_READ = Debug, "setting read", "";
    /// An edit of the configuration was refused and has no effect.
    CHANGE_REFUSED = Warn, "change of the configuration refused",
        "Correct the file as `reason` says; the configuration before the edit stays in force.";
    /// All discovery streams whose resources a change affects have answered it (ACK or NACK).
    CHANGE_DELIVERED = Info, "change delivered", "";
    /// A node is in a locality that neither a service nor `fleets.zones` has. Its demand does not
    /// count. `did_you_mean` is the nearest known locality, if one is near.
    UNKNOWN_LOCALITY = Warn, "node is in an unknown locality; its demand does not count",
        "Correct `node.locality` (its region may be missing), or add the zone to `fleets.zones`.";
    /// Two proxies use one id: their load reports replace each other, and demand is wrong.
    SHARED_NODE_ID = Warn, "several proxies have the same node id",
        "Give every proxy its own `node.id`.";
    /// Metrics could not be sent to the collector in `otlp`. They are sent again at the next
    /// interval; `/metrics` is not affected.
    OTLP_EXPORT_FAILED = Warn, "export of metrics failed",
        "Check the collector in `otlp.endpoint`; `reason` has its answer.";
    /// Metrics are exported again.
    OTLP_EXPORT_RECOVERED = Info, "export of metrics recovered", "";
    /// A configuration took effect.
    CONFIG_APPLIED = Info, "configuration applied", "";
    /// Two sources of services have one of the same name. That of `used` is in force, that of
    /// `ignored` takes over when it is gone there.
    SERVICE_CONFLICT = Warn, "service is in two sources; using the one of higher precedence",
        "Rename one of the two, or remove the one in the files once it is found elsewhere.";
    /// Nodes joined or left a fleet.
    FLEET_CHANGED = Debug, "fleet changed", "";
    /// A load report cannot be used. The previous report of the node stays in use until it expires.
    REPORT_IGNORED = Warn, "load report ignored",
        "Correct the node as `reason` says, for instance its `node.id` or locality.";
    /// A node reports more than three times in `load_reporting.interval`. The report is dropped;
    /// the previous one stays in use.
    REPORT_TOO_EARLY = Warn, "load report dropped: its node reports too often",
        "Look at the node: its timer is broken.";
    /// A stream of a node is refused, because a limit of the configuration is reached. `suppressed`
    /// counts lines of this kind that were left out since the last one.
    STREAM_REFUSED = Warn, "stream refused: a limit is reached",
        "Find out who opens so many streams; raise the limit in `reason` if they are yours.";
    /// A stream is refused, because a node with the same id and fleet is connected from another
    /// peer. The first stream stays open.
    DUPLICATE_NODE = Warn, "stream refused: node id is in use by another peer",
        "Give every proxy its own `node.id`; `reason` has both peers.";
    /// A message of a peer exceeds a limit, and its stream ends; or a what-if question to the admin
    /// API does, and is refused.
    REQUEST_REFUSED = Warn, "request refused: a limit is exceeded",
        "Look at the peer; raise `limit` under `limits` if the request is legitimate.";
    /// A Service of Kubernetes, or all of a namespace together, would use more than `limit` allows.
    /// What was accepted last stays in force; other namespaces do not notice.
    BEYOND_BUDGET = Warn, "a Service exceeds a limit; it stays as it was last accepted",
        "Talk to its owner, who has an event; raise `limit` under `limits` if it is legitimate.";
    /// More load reports wait than `limits.queue_bytes` allows. Their streams are slowed down.
    QUEUE_FULL = Warn, "load reports wait for the writer; slowing down their streams",
        "Look for a peer that sends large reports; add CPU, or raise `load_reporting.interval`.";
    /// A node reports many times the median rate of its fleet. Only a part of it counts.
    NODE_CAPPED = Warn, "load reports of a node are implausibly high; counting a part of them",
        "Look at the node; raise `demand.max_times_median` if its load is real.";
    /// Many more of the requests of a fleet to a zone fail than of those to another zone. While
    /// measured demand would send more requests there than host counts do, host counts decide.
    /// `failed_share` is the share of the requests of all proxies to the zone; `from` names the
    /// zones of the proxies, if only their requests fail.
    ZONE_FAILS = Error, "requests to a zone fail; nobody spills into it until they stop failing",
        "Look at the hosts of the zone and at the network to them; give the service health checks.";
    /// Requests to a zone have not failed for a while.
    ZONE_RECOVERED = Info, "requests to a zone no longer fail", "";
    /// The task that owns the state has panicked. The process exits.
    WRITER_PANICKED = Error, "writer panicked; exiting",
        "Restart the process if nothing does so, and report the panic.";
    /// The task that reads the files, uses the store or follows a source of services has ended. The
    /// process exits.
    TASK_ENDED = Error, "task ended; exiting",
        "Restart the process if nothing does so, and report the panic.";
    /// Traffic fractions of a cluster were computed, for the `cause` given.
    PLANNED = Debug, "traffic fractions computed", "";
    /// A node joined, left or moved to another locality, according to its load reports.
    DEMAND_CHANGED = Info, "node joined, left or moved", "";
    /// A client may not be the node that it says it is: no rule of `identities` matches its
    /// certificate, or `field` of the rule does not allow it. The stream ended with
    /// PERMISSION_DENIED. `suppressed` lines like this one were left out since the last one.
    NODE_REFUSED = Warn, "node refused by the rules of identities",
        "Correct the node or its certificate, or the rule that is named.";
    /// As many streams to the management server behind the relay are open as
    /// `relay.max_connections` allows. The discovery stream ended with RESOURCE_EXHAUSTED.
    RELAY_STREAM_REFUSED = Warn, "relayed stream refused: too many connections to the server",
        "Raise `relay.max_connections`, or find out which nodes open streams.";
    /// Entries of the audit cannot be written to disk. They stay in memory, and are lost with the
    /// process; routing is not affected.
    AUDIT_NOT_WRITTEN = Warn, "audit cannot be written to disk",
        "Make room on the disk, or let the user of the process write to `directory`.";
    /// A certificate ends within two weeks, or has ended. Open connections are not affected; new
    /// ones fail from then on. `of` says what it is used for.
    CERTIFICATE_EXPIRES = Warn, "certificate expires soon, or has expired",
        "Renew it; new files take effect without a restart.";
    /// Other machines reach ADS and LRS without TLS: every client may be any node.
    INSECURE = Warn, "ADS and LRS are served without TLS on an address beyond loopback",
        "Set `tls` in the configuration, with `client_ca` and `identities`.";
    /// Other machines reach the admin API without TLS: the admin token is sent in plain text.
    INSECURE_ADMIN = Warn, "admin API is served without TLS on an address beyond loopback",
        "Set `admin_tls`, or serve only `read_only` to other machines.";
    /// Records of replicas are sent to other machines without TLS: who can write them sets the
    /// demand of all services.
    INSECURE_STORE = Warn, "store is reached without TLS on another machine",
        "Set `store.etcd.tls`.";
    /// The relay cannot decode a resource. It is passed on as it is, without measured fractions.
    RESOURCE_RELAYED_UNCHANGED = Warn, "resource cannot be decoded; relaying it unchanged",
        "Correct the resource at the management server behind the relay; see `error`.";
    /// The management server behind the relay sent an invalid response. Its previous resources stay
    /// in use.
    RELAYED_RESPONSE_REJECTED = Warn,
        "response of the management server behind the relay rejected (NACK)",
        "Correct the resource at that server; `reason` names the field.";
    /// The store is connected: load reports of `nodes` nodes of all replicas count.
    STORE_CONNECTED = Info, "store connected", "";
    /// The store that replicas share cannot be reached. Nodes of other replicas count with their
    /// last load reports until it can.
    STORE_LOST = Warn, "store unreachable; continuing with the last known state",
        "Look at etcd, and at the network to its members; `reason` has the last error.";
    /// A zone is taken out of use, is out, or is back.
    ZONE_MOVED = Info, "zone moved", "";
    /// Requests to the hosts of a zone fail (`backends`), or those of its proxies everywhere
    /// (`network`), many times more than elsewhere, in two reports in a row.
    ZONE_SUSPECT = Warn, "zone is ill",
        "Look at the hosts of the zone, or at its network; `would` says what follows.";
    /// Somebody returns a zone to service.
    ZONE_RETURNS = Info, "zone returns", "";
    /// A drain does not fit any more, because demand grew or capacity was lost: it stays where it
    /// is.
    ZONE_HELD = Warn, "drain of a zone held",
        "Add hosts in the other zones, or return the zone; `reason` has the figure.";
    /// Orders about zones cannot be kept: a restart forgets those that changed.
    STATE_FILE_FAILED = Warn, "state file cannot be written",
        "Look at the directory of `evacuation.state_file`, and its rights.";
    /// The store cannot be reached since the start. Returning proxies keep the weights that they
    /// have, new ones get host counts.
    STORE_UNREACHABLE = Warn, "store cannot be reached; demand of other replicas is unknown",
        "Look at etcd, and at the network to its members; `reason` has the last error.";
    /// The record of a node is too large for the store: other replicas do not count its demand.
    RECORD_TOO_LARGE = Warn, "load report of a node is too large to share with other replicas",
        "Look at the node: it reports thousands of clusters or localities.";
    /// A plan is too large for the store: each replica delivers its own.
    PLAN_TOO_LARGE = Warn, "traffic fractions are too large to share with other replicas",
        "Look for proxies that report thousands of zones, or divide the fleet.";
    /// A node reports more than twice in `load_reporting.interval`. Other replicas get the newest
    /// report after half an interval.
    WRITE_DELAYED = Warn, "node reports too often; sharing its newest report later",
        "Look at the node: its timer is broken, or two proxies use one id.";
    /// A record in the store cannot be decoded. It is ignored.
    RECORD_INVALID = Warn, "record in the store is invalid; ignored",
        "Look for another program that writes under `store.etcd.prefix`.";
    /// Two proxies with the same id report load, one to this replica and one to another.
    DUPLICATE_AT_REPLICAS = Warn, "node id is in use at another replica",
        "Give every proxy its own `node.id`; the newest load report of the two counts.";
    /// Status, events or a DestinationRule could not be written to the Kubernetes cluster. Tried
    /// again; routing is not affected.
    KUBERNETES_WRITE_FAILED = Warn, "cannot write to Kubernetes",
        "Look at `reason`; 403 means that the RBAC role lacks a rule.";
    /// The history of etcd could not be compacted. It grows until that succeeds.
    COMPACTION_FAILED = Warn, "history of etcd not compacted",
        "Look at `error`; let etcd compact by itself (`--auto-compaction-retention`).";
}
