//! Runs the cases of `vectors/http` through four proxies, and compares what they did.
//!
//! A proxy's behavior in a case is described by four [`ASPECTS`], in a form that does not depend on
//! the proxy: the text of an error or the headers that a proxy adds are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_testing::{plimsoll, repository};
use serde::Deserialize;
use serde_json::Value;

use super::{envoy, scratch};

pub(crate) const ASPECTS: [&str; 4] = ["answer", "connection", "forwarded", "fields"];

/// Texts of the [`ASPECTS`] of one outcome.
pub(crate) type Aspects = [String; 4];

/// Hop-by-hop headers (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 5] = ["keep-alive", "proxy-connection", "te", "trailer", "upgrade"];
/// Headers that proxies add or that describe the framing, which each proxy chooses.
const OWN: [&str; 4] = ["content-length", "host", "transfer-encoding", "via"];
const OWN_PREFIXES: [&str; 3] = ["x-envoy-", "x-forwarded-", "x-request-id"];

#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    #[serde(default)]
    send: Vec<Value>,
    #[serde(default)]
    frames: Vec<Value>,
    #[serde(default = "one")]
    requests: usize,
    listener: Option<String>,
    respond: Option<Value>,
}

const fn one() -> usize {
    1
}

#[derive(Debug, Deserialize)]
pub(crate) struct Outcome {
    answers: Vec<Answer>,
    connection: String,
    requests: Vec<Recorded>,
    wrong_probes: u32,
}

#[derive(Debug, Deserialize)]
struct Answer {
    status: String,
    body: String,
    fields: Vec<(String, String)>,
}

/// Request that reached the backend.
#[derive(Debug, Deserialize)]
struct Recorded {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    trailers: Vec<(String, String)>,
    body: String,
    tunnel: Option<String>,
    problems: Vec<String>,
    complete: bool,
}

/// Outcomes of all cases.
pub(crate) struct Run {
    pub(crate) cases: Vec<Case>,
    pub(crate) directory: PathBuf,
    /// By proxy and case.
    outcomes: BTreeMap<String, BTreeMap<String, Outcome>>,
}

fn vectors() -> PathBuf {
    repository().join("vectors/http")
}

impl Run {
    /// Starts the proxies and runs all cases.
    pub(crate) fn start() -> Self {
        let directory = scratch("http-differential");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command.arg("-B").arg(here.join("peers/http_differential"));
        command.arg(vectors().canonicalize().unwrap());
        let envoy = plimsoll_testing::envoy(envoy::CURRENT)
            .canonicalize()
            .unwrap();
        command.arg(format!("plimsoll={}", plimsoll().display()));
        command.arg(format!("envoy={}", envoy.display()));
        command.args(["nginx", "haproxy"].map(|name| format!("{name}={}", system_binary(name))));
        command.current_dir(&directory).stdin(Stdio::null());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        Self {
            cases: read_cases(),
            directory,
            outcomes: serde_json::from_slice(&output.stdout).unwrap(),
        }
    }

    pub(crate) fn outcome(&self, proxy: &str, case: &Case) -> &Outcome {
        &self.outcomes[proxy][&case.name]
    }
}

/// Debian installs daemons where `PATH` of a user may not look.
fn system_binary(name: &str) -> String {
    let path = format!("/usr/sbin/{name}");
    let exists = Path::new(&path).is_file();
    if exists { path } else { name.to_owned() }
}

fn read_cases() -> Vec<Case> {
    let mut files: Vec<_> = std::fs::read_dir(vectors()).unwrap().collect();
    files.sort_by_key(|file| file.as_ref().unwrap().path());
    let mut cases = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let mut content: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let own: Vec<Case> = match content.get_mut("cases") {
            Some(own) => serde_json::from_value(own.take()).unwrap(),
            None => continue,
        };
        assert_eq!(content["count"], own.len(), "{}", path.display());
        cases.extend(own);
    }
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "names of cases are unique");
    cases
}

/// Differences that are intended.
#[derive(Debug, Deserialize)]
pub(crate) struct Choices {
    pub(crate) choices: Vec<Choice>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Choice {
    pub(crate) title: String,
    pub(crate) reason: String,
    pub(crate) cases: BTreeMap<String, BTreeSet<String>>,
}

impl Choices {
    pub(crate) fn read() -> Self {
        let text = std::fs::read(vectors().join("choices.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub(crate) fn differences(self) -> BTreeMap<String, BTreeSet<String>> {
        let mut all = BTreeMap::new();
        for (name, aspects) in self.choices.into_iter().flat_map(|choice| choice.cases) {
            let twice = all.insert(name.clone(), aspects);
            assert!(twice.is_none(), "{name} is listed twice");
        }
        all
    }
}

pub(crate) fn aspects(case: &Case, outcome: &Outcome) -> Aspects {
    // What an aborted request had sent is a matter of buffering.
    let complete = || outcome.requests.iter().filter(|request| request.complete);
    let answers = outcome.answers.iter().map(|answer| describe(case, answer));
    [
        answers.collect::<Vec<_>>().join(", "),
        outcome.connection.clone(),
        complete()
            .map(Recorded::line)
            .collect::<Vec<_>>()
            .join(", "),
        complete()
            .map(Recorded::fields)
            .collect::<Vec<_>>()
            .join(", "),
    ]
}

fn describe(case: &Case, answer: &Answer) -> String {
    let status = answer.status.as_str();
    if !case.frames.is_empty() {
        // A malformed request is a stream error, and the error may be told by a response or by
        // closing the connection (RFC 9113, 8.1.1). The latter is another aspect.
        let refused = status.starts_with('4') || ["501", "closed", "reset"].contains(&status);
        return (if refused { "refused" } else { status }).to_owned();
    }
    let location = answer.fields.iter().find(|(name, _)| name == "location");
    match (&case.respond, status.as_bytes()[0]) {
        (None, b'4') => "4xx".to_owned(),
        (None, b'5') => "5xx".to_owned(),
        (None, _) => match location {
            Some((_, location)) => format!("{status} {location}"),
            None => status.to_owned(),
        },
        (Some(_), b'5') if answer.body != "hello" => "5xx".to_owned(),
        // Whether the status line was sent before the end is a matter of buffering.
        (Some(_), _) if status == "closed" || status.ends_with("cut off") => "cut off".to_owned(),
        (Some(_), _) => {
            let fields = answer.fields.iter().filter(|(name, _)| {
                let hop_by_hop = HOP_BY_HOP.contains(&name.as_str());
                hop_by_hop || name.starts_with("x-") && !is_own(name)
            });
            let fields: Vec<_> = fields
                .map(|(name, value)| format!("{name}: {value}"))
                .collect();
            format!("{status} {:?} {fields:?}", answer.body)
        }
    }
}

fn is_own(name: &str) -> bool {
    OWN.contains(&name) || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl Recorded {
    fn host(&self) -> Option<&str> {
        let host = self.headers.iter().find(|(name, _)| name == "host");
        host.map(|(_, value)| value.as_str())
    }

    fn line(&self) -> String {
        let tunnel = self.tunnel.as_deref().unwrap_or_default();
        let (method, target) = (&self.method, &self.target);
        let host = self.host();
        format!("{method} {target} {host:?} {:?} {tunnel:?}", self.body)
    }

    /// The client's fields and trailers.
    fn fields(&self) -> String {
        let headers = self.headers.iter().filter(|(name, value)| {
            let state = ["close", "keep-alive"].contains(&value.as_str());
            !(is_own(name) || name == "connection" && state)
        });
        let mut headers: Vec<_> = headers.collect();
        headers.sort();
        format!("{headers:?} {:?}", self.trailers)
    }
}

/// Rules that Plimsoll keeps whatever other proxies do.
pub(crate) fn broken_rules(case: &Case, outcome: &Outcome) -> Vec<String> {
    let mut broken = Vec::new();
    let mut check = |holds: bool, rule: &str| {
        if !holds {
            broken.push(format!("{}: {rule}: {outcome:?}", case.name));
        }
    };
    let requests = &outcome.requests;
    check(
        requests.len() <= case.requests,
        "the backend gets no more requests than the client has sent",
    );
    let well_formed = requests.iter().all(|request| request.problems.is_empty());
    check(well_formed, "requests to the backend are well-formed");
    check(
        requests.iter().all(Recorded::has_no_hop_by_hop),
        "hop-by-hop headers are not forwarded",
    );
    check(
        outcome.wrong_probes == 0,
        "another client gets its own response",
    );
    let faulty = |answer: &Answer| answer.status.starts_with('5') && answer.status != "501";
    check(
        case.respond.is_some() || !outcome.answers.iter().any(faulty),
        "a fault of the client is no fault of the server",
    );
    if let (Some(expected), Some(request)) = (case.host(), requests.first()) {
        check(
            request
                .host()
                .is_some_and(|host| host.eq_ignore_ascii_case(expected.trim())),
            "the forwarded host is the one that was routed",
        );
    }
    if case.listener.as_deref() == Some("edge") {
        let normalized = |request: &Recorded| is_normalized(&request.target);
        check(requests.iter().all(normalized), "the path is normalized");
    }
    broken
}

impl Recorded {
    fn has_no_hop_by_hop(&self) -> bool {
        self.headers
            .iter()
            .all(|(name, value)| match name.as_str() {
                "keep-alive" | "proxy-connection" => false,
                "te" => value == "trailers",
                "connection" | "upgrade" => {
                    let upgrade = self.headers.iter().any(|(name, _)| name == "upgrade");
                    upgrade && (name == "upgrade" || value == "upgrade")
                }
                _ => true,
            })
    }
}

fn is_normalized(target: &str) -> bool {
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let lower = path.to_ascii_lowercase();
    let segments_are_plain = lower
        .split('/')
        .all(|segment| segment != "." && segment != "..");
    let escapes = ["//", "\\", "%2e", "%2f", "%5c", "%00"];
    segments_are_plain && !escapes.iter().any(|escape| lower.contains(escape))
}

impl Case {
    /// Returns the host that the first request names, if it names exactly one.
    fn host(&self) -> Option<String> {
        if let Some(frame) = self.frames.first() {
            let fields = frame["headers"].as_array()?;
            let named = fields.iter().filter(|field| field[0] == ":authority");
            let values: Vec<_> = named.filter_map(|field| field[1].as_str()).collect();
            return (values.len() == 1).then(|| values[0].to_owned());
        }
        let text = self.send.first()?.as_str()?;
        if text.replace("\r\n", "").contains(['\r', '\n']) {
            return None;
        }
        let (line, fields) = text.split_once("\r\n")?;
        if let Some((scheme, rest)) = line.split(' ').nth(1)?.split_once("://")
            && scheme.bytes().all(|byte| byte.is_ascii_alphabetic())
        {
            let authority = rest.split(['/', '?', '#']).next()?;
            return Some(authority.to_owned());
        }
        let fields = fields.split("\r\n\r\n").next()?;
        let mut hosts = fields.split("\r\n").filter_map(|field| {
            let (name, value) = field.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.to_owned())
        });
        let host = hosts.next()?;
        hosts.next().is_none().then_some(host)
    }
}
