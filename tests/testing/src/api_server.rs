//! A scripted API server: lists in pages, watches with bookmarks, and faults on demand.
//!
//! It keeps objects with one version counter and a history, as etcd does, and answers like
//! `kube-apiserver` where the client depends on it: 410 for versions before a compaction, events
//! that begin after the requested version, DELETED for objects that leave a selector.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// API paths of the kinds, by plural.
const APIS: [(&str, &str); 5] = [
    ("services", "/api/v1"),
    ("events", "/api/v1"),
    ("endpointslices", "/apis/discovery.k8s.io/v1"),
    ("zoneroutingpolicies", "/apis/plimsoll.dev/v1alpha1"),
    ("destinationrules", "/apis/networking.istio.io/v1"),
];

/// A running API server.
pub struct ApiServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    running: Option<tokio::task::JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Version of the latest change; watches wait for it.
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<(String, String, String), Value>,
    version: u64,
    history: Vec<Stored>,
    /// Versions up to this one are compacted.
    compacted: u64,
    faults: Faults,
    requests: Vec<Recorded>,
}

struct Stored {
    version: u64,
    plural: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// Faults that are in force.
#[derive(Clone, Default)]
pub struct Faults {
    /// Code of the next answers, seconds of their `retry-after`, and their number.
    pub fail: Option<(u16, Option<u64>, usize)>,
    /// Accepts watches, and neither sends an event nor ends them.
    pub silent: bool,
    /// Only this token is accepted.
    pub token: Option<String>,
    /// Objects per page, if it is fewer than requested.
    pub page: Option<usize>,
    /// Refuses all pages of a list after the first.
    pub first_page_only: bool,
    /// Kinds that do not exist, by plural.
    pub missing: Vec<String>,
    /// Number of events after which a watch ends.
    pub events_per_watch: Option<usize>,
}

/// A request that the server got.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub token: Option<String>,
    pub body: Value,
    pub code: u16,
}

impl Recorded {
    pub fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }
}

impl ApiServer {
    /// Starts on any port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            version: watch::Sender::new(0),
        });
        let mut server = Self {
            address: listener.local_addr().unwrap(),
            shared,
            running: None,
        };
        server.serve(listener);
        server
    }

    fn serve(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        self.running = Some(tokio::spawn(async move {
            // Dropping the set with this task closes all connections.
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let shared = Arc::clone(&shared);
                        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        }));
    }

    /// Closes the listener and all connections.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    /// Listens again on the same port, with the same objects.
    pub async fn restart(&mut self) {
        self.stop().await;
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                // Connections of before may still be closing.
                Err(_) => tokio::task::yield_now().await,
            }
        };
        self.serve(listener);
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates or replaces an object.
    pub fn put(&self, plural: &str, object: Value) {
        self.shared.put(plural, object);
    }

    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        self.change(|state| {
            let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
            let Some(mut before) = state.objects.remove(&key) else {
                return;
            };
            state.version += 1;
            before["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.history.push(Stored {
                version: state.version,
                plural: plural.to_owned(),
                before: Some(before),
                after: None,
            });
        });
    }

    /// Forgets the history: watches from earlier versions get 410.
    pub fn compact(&self) {
        self.change(|state| {
            state.version += 1;
            state.compacted = state.version;
            state.history.clear();
        });
    }

    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.shared.state.lock().unwrap().faults);
    }

    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.shared.state.lock().unwrap().objects.get(&key).cloned()
    }

    pub fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.shared.state.lock().unwrap();
        let of_kind = state.objects.iter().filter(|(key, _)| key.0 == plural);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let version = {
            let mut state = self.shared.state.lock().unwrap();
            change(&mut state);
            state.version
        };
        self.shared.version.send_replace(version);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

impl Shared {
    fn put(&self, plural: &str, mut object: Value) -> Value {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = state.version.to_string().into();
        let part = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let key = (plural.to_owned(), part("namespace"), part("name"));
        let before = state.objects.insert(key, object.clone());
        let version = state.version;
        state.history.push(Stored {
            version,
            plural: plural.to_owned(),
            before,
            after: Some(object.clone()),
        });
        drop(state);
        self.version.send_replace(version);
        object
    }
}

/// Body of an answer: all at once, or the lines of a watch.
pub enum Answer {
    Full(Option<Bytes>),
    Lines(mpsc::Receiver<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => {
                let line = lines.poll_recv(context);
                line.map(|line| line.map(|line| Ok(Frame::data(line))))
            }
        }
    }
}

fn status(code: u16, reason: &str, retry_after: Option<u64>) -> Response<Answer> {
    let body = json!({"kind": "Status", "code": code, "reason": reason, "message": reason});
    let mut response = Response::new(Answer::Full(Some(body.to_string().into())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert("retry-after", seconds.to_string().parse().unwrap());
    }
    response
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            let hex = std::str::from_utf8(&digits).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// What a path refers to.
struct Target {
    plural: String,
    namespace: String,
    name: String,
    subresource: String,
}

impl Target {
    fn key(&self) -> (String, String, String) {
        (
            self.plural.clone(),
            self.namespace.clone(),
            self.name.clone(),
        )
    }
}

fn parse(path: &str) -> Option<Target> {
    APIS.iter().find_map(|(plural, api)| {
        let rest = path.strip_prefix(api)?.strip_prefix('/')?;
        let (namespace, rest) = match rest.strip_prefix("namespaces/") {
            Some(rest) => rest.split_once('/')?,
            None => ("", rest),
        };
        let mut parts = rest.split('/');
        if parts.next()? != *plural {
            return None;
        }
        Some(Target {
            plural: (*plural).to_owned(),
            namespace: namespace.to_owned(),
            name: parts.next().unwrap_or_default().to_owned(),
            subresource: parts.next().unwrap_or_default().to_owned(),
        })
    })
}

async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Answer> {
    let query: BTreeMap<String, String> = request
        .uri()
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), decode(value)))
        .collect();
    let header = request.headers().get("authorization");
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let mut recorded = Recorded {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        token: token.map(str::to_owned),
        query,
        body: Value::Null,
        code: 0,
    };
    let method = request.method().clone();
    let received = request.into_body().collect().await;
    let body = received.map(Collected::to_bytes).unwrap_or_default();
    recorded.body = serde_json::from_slice(&body).unwrap_or_default();
    let response = respond(shared, &recorded, &method);
    recorded.code = response.status().as_u16();
    shared.state.lock().unwrap().requests.push(recorded);
    response
}

fn respond(shared: &Arc<Shared>, recorded: &Recorded, method: &Method) -> Response<Answer> {
    let faults = {
        let mut state = shared.state.lock().unwrap();
        if let Some((code, retry_after, times)) = state.faults.fail {
            state.faults.fail = (times > 1).then_some((code, retry_after, times - 1));
            return status(code, "Injected", retry_after);
        }
        state.faults.clone()
    };
    if faults.token.is_some() && faults.token != recorded.token {
        return status(401, "Unauthorized", None);
    }
    let Some(target) = parse(&recorded.path) else {
        return status(404, "NotFound", None);
    };
    if faults.missing.contains(&target.plural) {
        return status(404, "NotFound", None);
    }
    if *method != Method::GET {
        return write(shared, recorded, method, &target);
    }
    if !target.name.is_empty() {
        let state = shared.state.lock().unwrap();
        return match state.objects.get(&target.key()) {
            Some(object) => json_answer(object),
            None => status(404, "NotFound", None),
        };
    }
    if recorded.is_watch() {
        return watch_objects(shared, recorded, target, &faults);
    }
    list(shared, recorded, &target, &faults)
}

fn json_answer(value: &Value) -> Response<Answer> {
    Response::new(Answer::Full(Some(value.to_string().into())))
}

/// Merges a patch into an object, or creates one.
fn write(
    shared: &Arc<Shared>,
    recorded: &Recorded,
    method: &Method,
    target: &Target,
) -> Response<Answer> {
    let (plural, sub) = (target.plural.as_str(), target.subresource.as_str());
    if *method == Method::POST {
        let name = recorded.body["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let mut key = target.key();
        name.clone_into(&mut key.2);
        if shared.state.lock().unwrap().objects.contains_key(&key) {
            return status(409, "AlreadyExists", None);
        }
        return json_answer(&shared.put(plural, recorded.body.clone()));
    }
    let before = shared
        .state
        .lock()
        .unwrap()
        .objects
        .get(&target.key())
        .cloned();
    let Some(mut object) = before.or_else(|| sub.is_empty().then(|| recorded.body.clone())) else {
        return status(404, "NotFound", None);
    };
    let managers = object["metadata"]["testManagers"].as_str();
    let manager = recorded.query.get("fieldManager").map(String::as_str);
    if let Some(owner) = managers
        && Some(owner) != manager
        && sub.is_empty()
        && recorded
            .query
            .get("force")
            .is_none_or(|force| force != "true")
    {
        let message = format!("Apply failed with 1 conflict: conflict with \"{owner}\"");
        return status(409, &message, None);
    }
    let fields: &[&str] = if sub == "status" {
        &["status"]
    } else if plural == "events" {
        &["count", "lastTimestamp"]
    } else {
        &["spec"]
    };
    for field in fields {
        if let Some(value) = recorded.body.get(*field) {
            object[*field] = value.clone();
        }
    }
    json_answer(&shared.put(plural, object))
}

fn matches(object: &Value, namespace: &str, selector: Option<&String>) -> bool {
    let own = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let labels = &object["metadata"]["labels"];
    (namespace.is_empty() || own == namespace)
        && selector.is_none_or(|selector| match selector.split_once('=') {
            Some((name, value)) => labels[name] == value,
            None => labels.get(selector).is_some(),
        })
}

fn list(
    shared: &Arc<Shared>,
    recorded: &Recorded,
    target: &Target,
    faults: &Faults,
) -> Response<Answer> {
    let (plural, namespace) = (&*target.plural, &*target.namespace);
    let state = shared.state.lock().unwrap();
    let number = |name: &str| recorded.query.get(name).and_then(|text| text.parse().ok());
    let limit: usize = number("limit").unwrap_or(usize::MAX);
    let limit = faults.page.map_or(limit, |page| page.min(limit));
    let (start, version) = match recorded.query.get("continue") {
        None => (0_usize, state.version),
        Some(token) => {
            let (start, version) = token.split_once('@').unwrap();
            (start.parse().unwrap(), version.parse::<u64>().unwrap())
        }
    };
    if version < state.compacted {
        return status(410, "Expired", None);
    }
    if faults.first_page_only && start > 0 {
        return status(503, "ServiceUnavailable", None);
    }
    let selector = recorded.query.get("labelSelector");
    let of_kind = state.objects.iter().filter(|(key, _)| key.0 == plural);
    let found: Vec<&Value> = of_kind
        .map(|(_, object)| object)
        .filter(|object| matches(object, namespace, selector))
        .collect();
    let end = found.len().min(start.saturating_add(limit));
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if end < found.len() {
        metadata["continue"] = format!("{end}@{version}").into();
    }
    json_answer(&json!({"metadata": metadata, "items": &found[start.min(end)..end]}))
}

fn watch_objects(
    shared: &Arc<Shared>,
    recorded: &Recorded,
    target: Target,
    faults: &Faults,
) -> Response<Answer> {
    let version: u64 = recorded.query["resourceVersion"].parse().unwrap_or(0);
    if version < shared.state.lock().unwrap().compacted {
        return status(410, "Expired", None);
    }
    let (lines, receiver) = mpsc::channel(64);
    let seconds = recorded.query["timeoutSeconds"].parse().unwrap();
    let mut feed = Feed {
        shared: Arc::clone(shared),
        plural: target.plural,
        namespace: target.namespace,
        selector: recorded.query.get("labelSelector").cloned(),
        version,
        lines,
        left: faults.events_per_watch.unwrap_or(usize::MAX),
    };
    let silent = faults.silent;
    tokio::spawn(async move {
        if silent {
            feed.lines.closed().await;
        } else {
            let _ = tokio::time::timeout(Duration::from_secs(seconds), feed.run()).await;
        }
    });
    Response::new(Answer::Lines(receiver))
}

struct Feed {
    shared: Arc<Shared>,
    plural: String,
    namespace: String,
    selector: Option<String>,
    version: u64,
    lines: mpsc::Sender<Bytes>,
    left: usize,
}

impl Feed {
    async fn run(&mut self) {
        let mut versions = self.shared.version.subscribe();
        loop {
            versions.borrow_and_update();
            for line in self.pending() {
                if self.left == 0 || self.lines.send(line.into()).await.is_err() {
                    return;
                }
                self.left -= 1;
            }
            tokio::select! {
                () = self.lines.closed() => return,
                changed = versions.changed() => if changed.is_err() { return },
            }
        }
    }

    fn pending(&mut self) -> Vec<String> {
        let state = self.shared.state.lock().unwrap();
        if self.version < state.compacted {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired"});
            self.version = state.version;
            return vec![format!("{}\n", json!({"type": "ERROR", "object": status}))];
        }
        let mut lines = Vec::new();
        let start = state
            .history
            .partition_point(|one| one.version <= self.version);
        let mut is_own = false;
        for stored in &state.history[start..] {
            if stored.plural != self.plural {
                continue;
            }
            let fits = |object: &Option<Value>| {
                let selector = self.selector.as_ref();
                object
                    .as_ref()
                    .is_some_and(|object| matches(object, &self.namespace, selector))
            };
            let (kind, object) = match (fits(&stored.before), fits(&stored.after)) {
                (false, false) => continue,
                (false, true) => ("ADDED", &stored.after),
                (true, true) => ("MODIFIED", &stored.after),
                (true, false) => ("DELETED", &stored.before),
            };
            let mut object = object.clone().unwrap();
            object["metadata"]["resourceVersion"] = stored.version.to_string().into();
            lines.push(format!("{}\n", json!({"type": kind, "object": object})));
            is_own = true;
        }
        if !is_own && state.version > self.version + 50 {
            // As the API server does from time to time: the version advances without own events.
            let bookmark = json!({"metadata": {"resourceVersion": state.version.to_string()}});
            lines.push(format!(
                "{}\n",
                json!({"type": "BOOKMARK", "object": bookmark})
            ));
        }
        if !lines.is_empty() {
            self.version = state.version;
        }
        lines
    }
}

/// A Service with a port `http`.
pub fn service(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}")},
           "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
                    "ipFamilies": ["IPv4"]}})
}

/// A slice whose endpoints are ready, as address and zone.
pub fn slice(namespace: &str, name: &str, service: &str, hosts: &[(&str, &str)]) -> Value {
    slice_at(namespace, name, service, 8080, hosts)
}

/// A slice with this port.
pub fn slice_at(
    namespace: &str,
    name: &str,
    service: &str,
    port: u16,
    hosts: &[(&str, &str)],
) -> Value {
    let endpoints: Vec<Value> = hosts
        .iter()
        .map(|(address, zone)| {
            json!({"addresses": [address], "zone": zone, "nodeName": "node-1",
                   "conditions": {"ready": true, "serving": true, "terminating": false},
                   "targetRef": {"kind": "Pod", "name": format!("{service}-{address}")}})
        })
        .collect();
    json!({"metadata": {"namespace": namespace, "name": name,
                        "labels": {"kubernetes.io/service-name": service}},
           "addressType": "IPv4", "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
           "endpoints": endpoints})
}
