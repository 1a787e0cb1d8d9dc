//! Builds the overlays of `deploy/kubernetes` with kubectl, and finds objects and pods in the
//! output.

use std::path::PathBuf;
use std::process::Command;

use plimsoll_testing::{kubectl, repository};
use plimsoll_xds::yaml::Document;
use serde_json::Value;

/// Overlays, in the order of the documentation.
pub(crate) const OVERLAYS: [&str; 8] = [
    "single",
    "replicas",
    "mtls",
    "replicas-mtls",
    "envoy",
    "sidecar",
    "gateway",
    "example",
];

/// Objects of an overlay, with field names in snake_case.
pub(crate) struct Built {
    pub(crate) name: &'static str,
    pub(crate) objects: Vec<Value>,
}

impl Built {
    /// Returns the objects of a kind.
    pub(crate) fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let of_kind = move |object: &&Value| object["kind"] == kind;
        self.objects.iter().filter(of_kind)
    }

    /// Returns the object of a kind with a name.
    pub(crate) fn find(&self, kind: &str, name: &Value) -> Option<&Value> {
        let mut all = self.objects.iter();
        all.find(|object| object["kind"] == kind && object["metadata"]["name"] == *name)
    }

    /// Returns the objects that have a pod template.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &Value> {
        let all = self.objects.iter();
        all.filter(|object| object["spec"]["template"]["spec"]["containers"].is_array())
    }

    /// Returns the pod templates that a label selector (`match_labels`, or labels alone) matches.
    pub(crate) fn selected(&self, selector: &Value) -> Vec<&Value> {
        let labels = selector.get("match_labels").unwrap_or(selector);
        let wanted = labels.as_object().unwrap();
        let templates = self.workloads().map(|one| &one["spec"]["template"]);
        let matches = |template: &&Value| {
            let labels = &template["metadata"]["labels"];
            wanted.iter().all(|(key, value)| labels[key] == *value)
        };
        templates.filter(matches).collect()
    }
}

/// Builds every overlay once; the tests of a module share nothing.
pub(crate) fn all() -> Vec<Built> {
    OVERLAYS.map(|name| built(name, &kustomize(name))).into()
}

/// Returns the directory of an overlay.
pub(crate) fn directory(overlay: &str) -> PathBuf {
    repository()
        .join("deploy/kubernetes/overlays")
        .join(overlay)
}

fn kustomize(overlay: &str) -> String {
    let output = Command::new(kubectl())
        .arg("kustomize")
        .arg(directory(overlay))
        .output()
        .unwrap_or_else(|error| panic!("kubectl: {error}; run `scripts/deps.sh test` once"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{overlay}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn built(name: &'static str, text: &str) -> Built {
    let read = |text: &str| Document::parse(text).and_then(|document| document.read());
    let objects: Result<Vec<Value>, _> = text.split("\n---\n").map(read).collect();
    let objects = objects.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(objects.len() >= 3, "{name} has {} objects", objects.len());
    Built { name, objects }
}

/// Returns all containers of a pod: sidecars and init containers first.
pub(crate) fn containers(template: &Value) -> Vec<&Value> {
    let lists = ["init_containers", "containers"].map(|field| &template["spec"][field]);
    let all = lists.into_iter().filter_map(Value::as_array).flatten();
    all.collect()
}

/// Returns the containers of a pod that run our image.
pub(crate) fn ours(template: &Value) -> Vec<&Value> {
    let all = containers(template).into_iter();
    all.filter(|one| one["image"].as_str().unwrap().starts_with("plimsoll:"))
        .collect()
}

/// Returns an array, or nothing if there is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
