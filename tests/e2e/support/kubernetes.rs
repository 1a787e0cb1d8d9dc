//! A scripted Kubernetes API server with the backends of a fleet as endpoints of a Service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub(crate) use plimsoll_testing::api_server::Recorded;
use plimsoll_testing::api_server::{ApiServer, service, slice_at};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::backends::Backends;

/// Namespace and Service of the backends.
pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const SERVICE: &str = "orders";

/// Running API server; stopped when dropped.
pub(crate) struct Kubernetes {
    server: ApiServer,
    token_file: PathBuf,
    runtime: Runtime,
}

impl Kubernetes {
    /// Starts an API server whose Service `orders` has these annotations.
    pub(crate) fn start(directory: &Path, annotations: &Value) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(ApiServer::start());
        let kubernetes = Self {
            server,
            token_file: directory.join("token"),
            runtime,
        };
        kubernetes.rotate_token("first");
        kubernetes.annotate(annotations);
        kubernetes
    }

    /// Returns the section of the control plane's configuration.
    pub(crate) fn config(&self, more: &str) -> String {
        let (url, token) = (self.server.url(), self.token_file.display());
        format!(
            "kubernetes: {{api_server: '{url}', token_file: '{token}', cluster_name: '{{service}}',
              namespaces: [{NAMESPACE}], region: r1, watch_timeout: 5s, {more}}}\n"
        )
    }

    pub(crate) fn annotate(&self, annotations: &Value) {
        let mut object = service(NAMESPACE, SERVICE);
        object["metadata"]["annotations"] = annotations.clone();
        self.put("services", object);
    }

    pub(crate) fn put(&self, plural: &str, object: Value) {
        let _inside = self.runtime.enter();
        self.server.put(plural, object);
    }

    pub(crate) fn delete(&self, plural: &str, name: &str) {
        self.server.delete(plural, NAMESPACE, name);
    }

    /// Writes one slice per backend: on one machine each has a port of its own.
    pub(crate) fn put_backends(&self, backends: &Backends, generation: u32) {
        for (zone, index, address) in each(backends) {
            self.put_backend(zone, index, address, generation);
        }
    }

    pub(crate) fn put_backend(
        &self,
        zone: &str,
        index: usize,
        address: SocketAddr,
        generation: u32,
    ) {
        let name = slice_name(zone, index, generation);
        let hosts = [(&*address.ip().to_string(), zone)];
        let slice = slice_at(NAMESPACE, &name, SERVICE, address.port(), &hosts);
        self.put("endpointslices", slice);
    }

    pub(crate) fn delete_backends(&self, backends: &Backends, generation: u32) {
        for (zone, index, _) in each(backends) {
            self.delete("endpointslices", &slice_name(zone, index, generation));
        }
    }

    /// Makes the server forget its history, so that watches end with 410.
    pub(crate) fn compact(&self) {
        self.server.compact();
    }

    pub(crate) fn stop(&mut self) {
        self.runtime.block_on(self.server.stop());
    }

    pub(crate) fn restart(&mut self) {
        self.runtime.block_on(self.server.restart());
    }

    /// Accepts only this token, and writes it to the file afterwards, as a late kubelet does.
    pub(crate) fn rotate_token(&self, token: &str) {
        self.server
            .set_faults(|faults| faults.token = Some(token.to_owned()));
        std::fs::write(&self.token_file, token).unwrap();
    }

    /// Returns the section of a replica that is known to the API server by its token.
    pub(crate) fn replica_config(&self, token_file: &Path, more: &str) -> String {
        self.server.set_faults(|faults| faults.token = None);
        let (url, token) = (self.server.url(), token_file.display());
        format!(
            "kubernetes: {{api_server: '{url}', token_file: '{token}', namespaces: [{NAMESPACE}],
              watch_timeout: 5s, {more}}}\n"
        )
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.server.requests()
    }

    pub(crate) fn object(&self, plural: &str, name: &str) -> Value {
        let found = self.server.object(plural, NAMESPACE, name);
        found.unwrap_or(json!(null))
    }
}

fn each(backends: &Backends) -> impl Iterator<Item = (&str, usize, SocketAddr)> {
    let zones = backends.addresses().iter();
    zones.flat_map(|(zone, addresses)| {
        let indexed = addresses.iter().enumerate();
        indexed.map(move |(index, address)| (zone.as_str(), index, *address))
    })
}

pub(crate) fn slice_name(zone: &str, index: usize, generation: u32) -> String {
    format!("{SERVICE}-{zone}-{index}-{generation}")
}
