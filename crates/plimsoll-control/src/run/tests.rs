//! Tests of starting, reloading and stopping a control plane.

use super::*;
use crate::config::{ConfigFile, restart_needed};
use crate::server::start_replica;
use crate::services::{Found, ServiceChanges};
use crate::sources::{Running, SourceId};
use plimsoll_serve::discovery::{SourceClock, SourceStatus};

fn config(text: &str) -> ControlConfig {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: text.to_owned(),
    };
    ControlConfig::parse(&file, &[]).unwrap()
}

fn options(directory: &std::path::Path, text: &str) -> Options {
    let file = directory.join("control.yaml");
    std::fs::write(&file, text).unwrap();
    Options {
        config: file,
        listen: Some(([127, 0, 0, 1], 0).into()),
        admin: Some(([127, 0, 0, 1], 0).into()),
        read_only: None,
        ..Options::default()
    }
}

/// A control plane that runs, and its file.
struct Started {
    context: Context,
    running: JoinHandle<Result<(), RunError>>,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Started {
    async fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path(), text);
        let file = options.config.clone();
        let control = Control::start(options).await.unwrap();
        Self {
            context: control.context().clone(),
            running: tokio::spawn(control.run(AdminOptions::default())),
            file,
            _directory: directory,
        }
    }

    async fn stop(self) {
        self.context.stopping.cancel();
        drop(self.context);
        self.running.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_panic_of_the_writer_ends_the_run_with_an_error() {
    let Started {
        context, running, ..
    } = Started::new("{}").await;
    let asked = context
        .handle
        .inspect(|_, _| -> () { panic!("injected by a test") });
    assert!(asked.await.is_err());
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the writer has ended");
    assert!(context.stopping.is_cancelled());
}

#[tokio::test]
async fn a_reload_on_request_reads_the_files_again() {
    let started = Started::new("{}").await;
    let context = &started.context;
    assert_eq!(context.reload.reload(false).await.unwrap(), Ok(()));
    assert_eq!(context.reloads.counts().succeeded, 1);
    started.stop().await;
}

#[tokio::test]
async fn an_edit_that_removes_too_much_is_refused_unless_it_is_allowed() {
    let started = Started::new("services: [{cluster: {name: a}}, {cluster: {name: b}}]").await;
    let context = &started.context;
    let edited = "{listen: '127.0.0.1:1', demand: {missed_intervals: 5}}";
    std::fs::write(&started.file, edited).unwrap();
    let handle = &context.handle;
    let services = || handle.inspect(|state, _| state.config().services.len());
    let reason = context.reload.reload(false).await.unwrap().unwrap_err();
    assert!(reason.contains("removes 2 of 2 services"), "{reason}");
    assert_eq!(services().await.unwrap(), 2);
    let refused = &handle.audit().all()[0];
    assert_eq!((&*refused.by, &refused.reason), ("SIGHUP", &Some(reason)));
    let counted = handle.counters().values();
    // The files are also polled: the edit may be refused a second time.
    assert!(counted[&("config_removals_refused_total", "")] >= 1);
    assert_eq!(context.reload.reload(true).await.unwrap(), Ok(()));
    assert_eq!(services().await.unwrap(), 0);
    let counts = context.reloads.counts();
    assert_eq!(counts.succeeded, 1);
    assert!(counts.failed >= 1 && counts.error.is_none());
    assert_eq!(counts.restart_needed, ["demand.missed_intervals"]);
    started.stop().await;
}

#[tokio::test]
async fn services_of_kubernetes_stay_until_the_section_is_removed() {
    let section =
        |mode: &str| format!("kubernetes: {{api_server: 'http://127.0.0.1:1', mode: {mode}}}");
    let started = Started::new(&section("SHADOW")).await;
    let context = &started.context;
    let found = Found {
        service: Arc::clone(&config("services: [{cluster: {name: a}}]").services["a"]),
        object: Some("Service shop/a@1".into()),
    };
    let listed = ServiceChanges {
        services: [("a".into(), Some(found))].into(),
        ..ServiceChanges::none(SourceId::Kubernetes)
    };
    context.handle.discover(listed).await.unwrap();
    for (text, count) in [
        (section("SHADOW"), 1),
        (section("ENFORCE"), 1),
        ("{}".to_owned(), 0),
    ] {
        std::fs::write(&started.file, &text).unwrap();
        if count == 0 {
            let refused = context.reload.reload(false).await.unwrap().unwrap_err();
            assert!(refused.contains("the edit removes kubernetes"), "{refused}");
        }
        let is_intended = count == 0;
        assert_eq!(context.reload.reload(is_intended).await.unwrap(), Ok(()));
        let services = |state: &crate::state::State, _| state.config().services.len();
        let services = context.handle.inspect(services).await.unwrap();
        let is_mirrored = context.handle.source(SourceId::Kubernetes).is_some();
        assert_eq!((services, is_mirrored), (count, count > 0), "{text}");
    }
    started.stop().await;
}

/// Writes a certificate and its key, which is also its authority; returns their paths.
fn certificate(directory: &std::path::Path) -> [String; 2] {
    let names = vec!["control.example".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let key = write("key.pem", made.signing_key.serialize_pem());
    [write("cert.pem", made.cert.pem()), key]
}

#[tokio::test]
async fn listeners_have_the_addresses_and_certificates_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(directory.path());
    let pair = format!("{{certificate: '{certificate}', private_key: '{key}'}}");
    let text = format!("{{tls: {pair}, admin_tls: {pair}}}");
    let secured = Options {
        read_only: Some(([127, 0, 0, 1], 0).into()),
        ..options(directory.path(), &text)
    };
    let control = Control::start(secured).await.unwrap();
    let Bound {
        xds,
        admin,
        read_only,
    } = control.context().bound;
    let ports = [Some(xds), admin, read_only].map(|address| address.unwrap().port());
    assert!(ports.iter().all(|port| *port != 0), "{ports:?}");
    let listeners = &control.context().listeners;
    assert!(listeners.xds_tls.is_some() && listeners.admin_tls.is_some());
    assert!(listeners.admin_uses_tls && !listeners.insecure.any());
    let control = Control::start(options(directory.path(), "admin: ''"));
    let plain = &control.await.unwrap().context().clone();
    assert_eq!(plain.bound.read_only, None);
    assert!(plain.listeners.xds_tls.is_none() && plain.listeners.admin_tls.is_none());
    assert!(!plain.listeners.admin_uses_tls);
    let exposed = Listeners::start(&config("{listen: '0.0.0.0:1', insecure: true}"));
    let insecure = exposed.unwrap().insecure;
    assert!(insecure.xds && !insecure.admin);
}

#[test]
fn certificates_that_cannot_be_used_are_named_by_their_field() {
    let listening = "{certificate: /none/a, private_key: /none/b}";
    let text = format!(
        "{{tls: {listening}, admin_tls: {listening}, relay: {{address: 'h:1', tls: {{ca: \
         /none/c}}}}, otlp: {{endpoint: 'https://h', tls: {{ca: /none/d}}}}}}"
    );
    let faults = certificate_faults(&config(&text));
    let fields: Vec<&str> = faults.iter().map(FieldError::path).collect();
    assert_eq!(fields, ["tls", "admin_tls", "relay.tls", "otlp.tls"]);
    for (fault, file) in faults.iter().zip(["a", "a", "c", "d"]) {
        let reason = fault.reason();
        assert!(
            reason.starts_with("cannot use a certificate: ")
                && reason.contains(&format!("/none/{file}")),
            "{reason}"
        );
    }
    assert_eq!(certificate_faults(&config("{}")), []);
}

#[tokio::test]
async fn a_collector_whose_certificates_cannot_be_used_is_an_error() {
    let text = "otlp: {endpoint: 'https://h', tls: {ca: /none/ca.pem}}";
    let config = Arc::new(config(text));
    let (_writer, handle) = start_replica(Arc::clone(&config), None);
    let bound = Bound {
        xds: ([127, 0, 0, 1], 1).into(),
        admin: None,
        read_only: None,
    };
    let context = Context::new(handle, bound);
    assert!(start_export(&context, None).is_ok());
    let error = start_export(&context, config.operation.otlp.clone()).unwrap_err();
    assert_eq!(error.to_string(), "cannot use a certificate");
}

#[tokio::test]
async fn an_unchanged_connector_of_the_relayed_server_stays() {
    let directory = tempfile::tempdir().unwrap();
    let [ca, _] = certificate(directory.path());
    let relayed = |name: &str| {
        config(&format!(
            "relay: {{address: 'h:1', tls: {{ca: '{ca}', server_name: {name}}}}}"
        ))
    };
    let (_writer, handle) = start_replica(Arc::new(config("{}")), None);
    let set = |config: &ControlConfig| {
        set_relay_connector(&handle, config).unwrap();
        handle.upstreams().connector()
    };
    assert!(set(&config("relay: {address: 'h:1'}")).is_none());
    let first = set(&relayed("a")).unwrap();
    assert!(Arc::ptr_eq(&set(&relayed("a")).unwrap(), &first));
    let second = set(&relayed("b")).unwrap();
    assert!(!Arc::ptr_eq(&second, &first));
    assert_eq!(second.settings().server_name.as_deref(), Some("b"));
    assert!(set(&config("{}")).is_none());
}

#[test]
fn a_replica_has_a_name_and_the_time_of_its_start() {
    let named = Options {
        replica_id: Some("r7".to_owned()),
        ..Options::default()
    };
    assert_eq!(&*named.replica().id, "r7");
    let unix_ms = || {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(since.as_millis()).unwrap()
    };
    // The system clock and the monotonic one may differ a little.
    let expected = unix_ms() - 60_000..=unix_ms() + 60_000;
    let replica = Options::default().replica();
    assert!(expected.contains(&replica.started_unix_ms), "{replica:?}");
    let (_, digits) = replica.id.rsplit_once('-').unwrap();
    assert_eq!(digits, format!("{:08x}", replica.instance >> 32));
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn only_a_control_plane_with_a_store_connects_to_one() {
    let stored = config("store: {etcd: {endpoints: ['127.0.0.1:1']}}");
    let replica = Options::default().replica();
    let listen = SocketAddr::from(([127, 0, 0, 1], 1));
    let start = |config: &ControlConfig, replica: Option<ReplicaIdentity>| {
        let (_writer, handle) = start_replica(Arc::new(config.clone()), replica.as_ref());
        store(config, replica, listen, &handle).unwrap().is_some()
    };
    assert!(start(&stored, Some(replica.clone())));
    assert!(!start(&stored, None));
    assert!(!start(&config("{}"), None));
}

#[test]
fn limits_and_host_names_reach_the_servers() {
    let limits = config(
        "limits: {names: 5, streams: 6, streams_per_peer: 3, unfinished_bytes: 4194304,
            message_timeout: 7s,
            name_bytes: 64, subscription_bytes: 2000000}",
    )
    .operation
    .limits;
    let options = server_options(&limits);
    assert_eq!(options.requests.names, 5);
    assert_eq!((options.max_streams, options.max_streams_per_peer), (6, 3));
    assert_eq!(options.unfinished_bytes, 4 << 20);
    assert_eq!(options.subscription_bytes, 2_000_000);
    let ads = options.ads;
    assert_eq!((ads.names_per_type, ads.name_length), (5, 64));
    assert_eq!(
        ads.subscription_bytes, 2_000_000,
        "not more than all may have"
    );
    let default = server_options(&Limits::default());
    assert_eq!(default.ads, plimsoll_xds::ads::server::Limits::default());
    assert_eq!(options.message_timeout, Duration::from_secs(7));
    let admin = AdminOptions {
        hosts: vec!["control.example".to_owned()],
        pages: Some(Router::new()),
        ..AdminOptions::default()
    };
    let reading = read_only(&admin);
    assert_eq!(reading.hosts, admin.hosts);
    assert!(reading.pages.is_some() && reading.token.is_none());
    assert_eq!(reading.access, AdminAccess::ReadOnly);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(open_files_limit(), limit.current);
}

/// Sends a request that changes something; returns the status of the response.
async fn post(address: SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status.to_owned()
}

#[tokio::test]
async fn changes_are_possible_at_the_admin_address_only() {
    let directory = tempfile::tempdir().unwrap();
    let both = Options {
        read_only: Some(([127, 0, 0, 1], 0).into()),
        ..options(directory.path(), "{}")
    };
    let control = Control::start(both).await.unwrap();
    let context = control.context().clone();
    // Whatever the caller sets, each address has its own access.
    let running = tokio::spawn(control.run(AdminOptions {
        access: AdminAccess::ReadOnly,
        ..AdminOptions::default()
    }));
    let bound = context.bound;
    assert_eq!(post(bound.admin.unwrap(), "/api/v1/reload").await, "200");
    assert_ne!(
        post(bound.read_only.unwrap(), "/api/v1/reload").await,
        "200"
    );
    assert_eq!(context.reloads.counts().succeeded, 1);
    let by = context.handle.audit().all()[0].by.clone();
    assert!(by.starts_with("request to /api/v1/reload by "), "{by}");
    context.stopping.cancel();
    drop(context);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_task_that_ends_before_the_control_plane_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let control = Control::start(options(directory.path(), "{}"))
        .await
        .unwrap();
    let context = control.context().clone();
    let running = tokio::spawn(control.run(AdminOptions::default()));
    let status = Arc::new(SourceStatus::new(SourceClock::default()));
    let handle = context.handle.clone();
    let source = Running::spawn(SourceId::Consul, handle, &status, async {});
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the task \"consul\" has ended");
    assert!(context.stopping.is_cancelled());
    drop(source);
}

#[test]
fn fields_that_need_a_restart_are_listed() {
    let started = config("{}");
    let edited = config("{load_reporting: {interval: 5s}, services: [{cluster: {name: a}}]}");
    assert_eq!(restart_needed(&started, &edited), [""; 0]);
    let edited = config("{demand: {heartbeat: 5s}}");
    assert_eq!(restart_needed(&started, &edited), [""; 0]);
    let edited = config("{listen: '127.0.0.1:1', demand: {missed_intervals: 5}}");
    assert_eq!(
        restart_needed(&started, &edited),
        ["listen", "demand.missed_intervals"]
    );
    let edited = config("{limits: {nodes: 5, fleets: 5, zones_per_fleet: 5, what_if_zones: 5}}");
    assert_eq!(restart_needed(&started, &edited), [""; 0]);
    for limit in [
        "queue_bytes: 65536",
        "names: 5",
        "streams: 5",
        "unfinished_bytes: 4194304",
        "subscription_bytes: 1048576",
        "message_timeout: 1s",
    ] {
        let edited = config(&format!("{{limits: {{{limit}}}}}"));
        assert_eq!(restart_needed(&started, &edited), ["limits"]);
    }
    let edited = config("{demand: {max_times_median: 5}}");
    assert_eq!(
        restart_needed(&started, &edited),
        ["demand.max_times_median"]
    );
    let edited = config("{demand: {idle_timeout: 60s}}");
    assert_eq!(restart_needed(&started, &edited), ["demand.idle_timeout"]);
    let edited = config(
        "{tls: {certificate: a, private_key: b}, limits: {connections: 7}, admin: '',
          admin_tls: {certificate: a, private_key: b}, read_only: '127.0.0.1:1'}",
    );
    assert_eq!(
        restart_needed(&started, &edited),
        ["tls", "admin", "admin_tls", "read_only", "limits"]
    );
}

#[test]
fn some_of_the_files_that_the_process_may_open_are_left() {
    let limits = config("{limits: {connections: 1000}}")
        .operation
        .limits
        .incoming;
    let most = |files| within_files(limits, files).connections.connections;
    assert_eq!(most(None), 1000);
    assert_eq!(most(Some(100_000)), 1000);
    assert_eq!(most(Some(1200)), 1200 - 256);
    assert_eq!(most(Some(300)), 150);
    let (whole, part) = (limits.connections, within_files(limits, Some(300)));
    assert_eq!(part.connections.per_peer, whole.per_peer);
    assert_eq!(part.handshake_timeout, limits.handshake_timeout);
}
