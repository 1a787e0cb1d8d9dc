//! [`Pool`]: a limited number of connections to the agent, which requests share in turn.
//!
//! A blocking query occupies its connection (HTTP/1.1) until it is answered, and an agent limits
//! the connections of one client (`http_max_conns_per_client`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::Full;
use plimsoll_serve::http_client::{HttpClient, percent_encoded, read_body, with_query};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::SourceOptions;
use crate::access::ConsulAccess;
use crate::query::{AnswerMeta, Consistency};

/// Largest answer: 20,000 instances of one service.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const MAX_ERROR_BYTES: usize = 4 << 10;

/// A request for a state, which is answered when it changes.
#[derive(Clone, Debug)]
pub(super) struct Query<'a> {
    pub(super) path: &'static str,
    /// Segment after the path; empty for none.
    pub(super) name: &'a str,
    pub(super) datacenter: Option<&'a str>,
    pub(super) index: u64,
    pub(super) consistency: Consistency,
    pub(super) wait: Duration,
}

/// Connections that are free.
#[derive(Debug)]
pub(super) struct Pool {
    access: ConsulAccess,
    grace: Duration,
    size: usize,
    permits: Semaphore,
    free: Mutex<Vec<HttpClient>>,
}

impl Pool {
    pub(super) fn new(options: &SourceOptions, size: usize) -> Self {
        Self {
            access: options.access.clone(),
            grace: options.grace,
            size,
            permits: Semaphore::new(size),
            free: Mutex::default(),
        }
    }

    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Waits for a connection, sends the query and decodes its answer. An error says why there is
    /// none.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        query: &Query<'_>,
    ) -> Result<(AnswerMeta, T), String> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|error| error.to_string())?;
        // A connection that is not put back, because the task was aborted, is closed.
        let mut client = self.lock().pop().unwrap_or_default();
        let answer = self.ask_with(&mut client, query).await;
        if answer.is_ok() {
            self.lock().push(client);
        }
        let (meta, body) = answer?;
        let decoded = serde_json::from_slice(&body);
        let decoded = decoded.map_err(|error| format!("invalid answer: {error}"))?;
        Ok((meta, decoded))
    }

    async fn ask_with(
        &self,
        client: &mut HttpClient,
        query: &Query<'_>,
    ) -> Result<(AnswerMeta, Bytes), String> {
        let request = self.request(query)?;
        if !client.is_ready().await {
            client.connect(&self.access.server).await?;
        }
        // Consul adds up to a sixteenth.
        let limit = query.wait + query.wait / 16 + self.grace;
        let response = client.send(request, limit).await?;
        let status = response.status();
        if !status.is_success() {
            let body = read_body(response, MAX_ERROR_BYTES)
                .await
                .unwrap_or_default();
            let reason = String::from_utf8_lossy(&body);
            return Err(format!("{status}: {}", reason.trim()));
        }
        let meta = meta(response.headers())?;
        Ok((meta, read_body(response, MAX_ANSWER_BYTES).await?))
    }

    fn request(&self, query: &Query<'_>) -> Result<Request<Full<Bytes>>, String> {
        let server = &self.access.server;
        let target = format!("{}{}", server.path_prefix, query.target());
        let mut builder = Request::builder()
            .uri(target)
            .header(HOST, server.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("plimsoll/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = self.access.token()? {
            let value = HeaderValue::try_from(token);
            let mut value = value.map_err(|_| "token is not a header value".to_owned())?;
            value.set_sensitive(true);
            builder = builder.header("x-consul-token", value);
        }
        let request = builder.body(Full::default());
        request.map_err(|error| error.to_string())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<HttpClient>> {
        // Every critical section leaves the data consistent, so poisoning can be ignored.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Query<'_> {
    fn target(&self) -> String {
        let mut path = self.path.to_owned();
        if !self.name.is_empty() {
            path += "/";
            path += &percent_encoded(self.name);
        }
        let index = self.index.to_string();
        let wait = format!("{}ms", self.wait.as_millis());
        let mut query = BTreeMap::new();
        if self.index > 0 {
            query.insert("index", index.as_str());
            query.insert("wait", wait.as_str());
        }
        match self.consistency {
            Consistency::Stale => drop(query.insert("stale", "")),
            Consistency::Default => {}
            Consistency::Consistent => drop(query.insert("consistent", "")),
        }
        if let Some(datacenter) = self.datacenter {
            query.insert("dc", datacenter);
        }
        let query: Vec<_> = query.into_iter().collect();
        with_query(&path, &query)
    }
}

/// Reads the headers of an answer.
fn meta(headers: &HeaderMap) -> Result<AnswerMeta, String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let index = text("x-consul-index").and_then(|index| index.parse().ok());
    let millis = text("x-consul-lastcontact").and_then(|millis| millis.parse().ok());
    Ok(AnswerMeta {
        index: index.ok_or("answer without X-Consul-Index: is this Consul?")?,
        last_contact: Duration::from_millis(millis.unwrap_or(0)),
        knows_leader: text("x-consul-knownleader") != Some("false"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_index_wait_consistency_and_datacenter() {
        let query = Query {
            path: "/v1/health/service",
            name: "a b/c",
            datacenter: Some("dc2"),
            index: 7,
            consistency: Consistency::Stale,
            wait: Duration::from_secs(2),
        };
        let expected = "/v1/health/service/a%20b%2Fc?dc=dc2&index=7&stale=&wait=2000ms";
        assert_eq!(query.target(), expected);
        let first = Query {
            path: "/v1/catalog/services",
            name: "",
            datacenter: None,
            index: 0,
            consistency: Consistency::Consistent,
            ..query
        };
        assert_eq!(first.target(), "/v1/catalog/services?consistent=");
    }

    #[test]
    fn an_answer_needs_an_index() {
        let mut headers = HeaderMap::new();
        assert!(meta(&headers).unwrap_err().contains("is this Consul?"));
        headers.insert("x-consul-index", HeaderValue::from_static("7"));
        let simple = meta(&headers).unwrap();
        assert_eq!((simple.index, simple.knows_leader), (7, true));
        headers.insert("x-consul-knownleader", HeaderValue::from_static("false"));
        headers.insert("x-consul-lastcontact", HeaderValue::from_static("1500"));
        let stale = meta(&headers).unwrap();
        assert!(!stale.knows_leader);
        assert_eq!(stale.last_contact, Duration::from_millis(1500));
    }
}
