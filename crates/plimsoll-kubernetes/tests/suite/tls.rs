//! TLS to the API server: its certificate has to be issued by an authority of the service account's
//! file, for the host that is dialed. Before that is known, no request and no token is sent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_kubernetes::{ApiAccess, Source, SourceOptions};
use serde_json::json;
use tempfile::TempDir;

use crate::support::tls::TlsFront;
use plimsoll_testing::Authority;
use plimsoll_testing::api_server::{ApiServer, service, slice};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
const VALID: i32 = 2099;

/// An API server behind TLS, and the files of a service account.
struct Testbed {
    server: ApiServer,
    front: TlsFront,
    directory: TempDir,
}

impl Testbed {
    async fn start(trusted: &Authority, certificate: &(String, String)) -> Self {
        let server = ApiServer::start().await;
        server.put("services", service("shop", "orders"));
        let hosts = [("10.0.1.1", "a")];
        server.put(
            "endpointslices",
            slice("shop", "orders-1", "orders", &hosts),
        );
        server.set_faults(|faults| faults.token = Some("secret".to_owned()));
        let front = TlsFront::start(server.address, certificate).await;
        let directory = tempfile::tempdir().unwrap();
        let testbed = Self {
            server,
            front,
            directory,
        };
        testbed.trust(trusted);
        std::fs::write(testbed.file("token"), "secret").unwrap();
        testbed
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the file of authorities as the kubelet does, by renaming.
    fn trust(&self, authority: &Authority) {
        let next = self.file("ca.crt.next");
        std::fs::write(&next, &authority.pem).unwrap();
        std::fs::rename(next, self.file("ca.crt")).unwrap();
    }

    fn source(&self) -> Source {
        Self::source_of(ApiAccess::Explicit {
            server: format!("https://{}", self.front.address),
            ca_file: Some(self.file("ca.crt")),
            token_file: Some(self.file("token")),
        })
    }

    fn source_of(access: ApiAccess) -> Source {
        plimsoll_kubernetes::start(&SourceOptions {
            access,
            watch_timeout: Duration::from_secs(2),
            ..SourceOptions::default()
        })
    }

    /// Waits for the reason of failed connections, and asserts that nothing was sent over them.
    async fn refused(&self, source: &Source) -> String {
        let reason = wait_for_failure(source).await;
        assert!(self.server.requests().is_empty(), "a request was sent");
        reason
    }
}

async fn wait_for_failure(source: &Source) -> String {
    let waiting = async {
        loop {
            if let Some((_, reason)) = source.status().failing() {
                return reason;
            }
            tokio::task::yield_now().await;
        }
    };
    let reason = tokio::time::timeout(PATIENCE, waiting).await;
    reason.unwrap_or_else(|_| panic!("no failure: {:?}", source.status()))
}

/// Waits until the API server has been listed.
async fn wait_until_listed(source: &mut Source) {
    let batch = tokio::time::timeout(PATIENCE, source.next()).await;
    let Ok(Some(batch)) = batch else {
        panic!("nothing was listed: {:?}", source.status());
    };
    assert_eq!(batch.services.len(), 1);
}

#[tokio::test]
async fn a_certificate_of_the_authority_is_accepted() {
    let authority = Authority::named("cluster");
    let testbed = Testbed::start(&authority, &authority.issue_until(&["127.0.0.1"], VALID)).await;
    wait_until_listed(&mut testbed.source()).await;
    let requests = testbed.server.requests();
    assert!(
        requests
            .iter()
            .all(|one| one.token.as_deref() == Some("secret"))
    );
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::named("cluster"), Authority::named("cluster"));
    let testbed = Testbed::start(&authority, &other.issue_until(&["127.0.0.1"], VALID)).await;
    let reason = testbed.refused(&testbed.source()).await;
    assert!(reason.contains("certificate"), "{reason}");
    assert!(
        reason.contains(&testbed.front.address.to_string()),
        "{reason}"
    );
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::named("cluster");
    let other_name = authority.issue_until(&["api.other.example"], VALID);
    let testbed = Testbed::start(&authority, &other_name).await;
    let reason = testbed.refused(&testbed.source()).await;
    assert!(reason.contains("not valid for name"), "{reason}");
    // A kubeconfig can say which name is meant.
    let kubeconfig = testbed.file("kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_text(&testbed, "api.other.example")).unwrap();
    let access = ApiAccess::Kubeconfig {
        path: kubeconfig,
        context: None,
    };
    wait_until_listed(&mut Testbed::source_of(access)).await;
}

fn kubeconfig_text(testbed: &Testbed, name: &str) -> String {
    let path = |path: &Path| path.display().to_string();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{}", testbed.front.address), "tls-server-name": name,
            "certificate-authority": path(&testbed.file("ca.crt"))}}],
        "users": [{"name": "test", "user": {"tokenFile": path(&testbed.file("token"))}}],
    })
    .to_string()
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::named("cluster");
    let testbed = Testbed::start(&authority, &authority.issue_until(&["127.0.0.1"], 2021)).await;
    let reason = testbed.refused(&testbed.source()).await;
    assert!(reason.contains("expired"), "{reason}");
}

#[tokio::test]
async fn a_server_without_tls_gets_no_request() {
    let authority = Authority::named("cluster");
    let testbed = Testbed::start(&authority, &authority.issue_until(&["127.0.0.1"], VALID)).await;
    let source = Testbed::source_of(ApiAccess::Explicit {
        server: format!("https://{}", testbed.server.address),
        ca_file: Some(testbed.file("ca.crt")),
        token_file: Some(testbed.file("token")),
    });
    let reason = testbed.refused(&source).await;
    assert!(reason.contains("cannot connect"), "{reason}");
}

#[tokio::test]
async fn a_file_of_authorities_that_is_replaced_is_used_without_a_restart() {
    let (old, new) = (Authority::named("old"), Authority::named("new"));
    let mut testbed = Testbed::start(&old, &old.issue_until(&["127.0.0.1"], VALID)).await;
    let mut source = testbed.source();
    wait_until_listed(&mut source).await;
    // The API server has its new certificate before the file is replaced.
    testbed
        .front
        .restart(&new.issue_until(&["127.0.0.1"], VALID))
        .await;
    let waiting = async {
        while !wait_for_failure(&source).await.contains("certificate") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    testbed.trust(&new);
    let service = service("shop", "users");
    testbed.server.put("services", service);
    wait_until_listed(&mut source).await;
    let waiting = async {
        while source.status().failing().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}
