//! [`Mirror`]: drives the reflector of one kind against the API server.

use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::{SourceClock, SourceCounts, SourceStatus, SourceTasks, draw};
use tokio::sync::mpsc;

use super::{Changes, MirrorParts, SourceOptions, Update, target};
use crate::log_lines;
use crate::objects::Resource;
use crate::reflector::{Failure, Reflector, Step};
use crate::session::Session;

/// Objects per page, as in client-go: a page of full slices is 15 MB.
const PAGE_LIMIT: &str = "500";

pub(super) struct Mirror<T> {
    reflector: Reflector<T>,
    session: Session,
    options: SourceOptions,
    namespace: String,
    selector: Option<String>,
    updates: mpsc::Sender<Update>,
    wrap: fn(Changes<T>) -> Update,
    status: Arc<SourceStatus>,
    clock: SourceClock,
    was_synced: bool,
    /// When requests began to fail.
    failing_since: Option<Instant>,
    /// Values of the reflector when they were last logged.
    logged: Logged,
}

#[derive(Debug, Default)]
struct Logged {
    held: usize,
    invalid: u64,
    is_missing: bool,
}

/// The source is shutting down.
struct Stopped;

impl<T: Resource> Mirror<T> {
    /// Starts the task of a mirror, one of `tasks`.
    pub(super) fn spawn(tasks: &SourceTasks, parts: MirrorParts, wrap: fn(Changes<T>) -> Update) {
        // From the start on, readiness waits for this kind.
        parts.status.update(T::KIND, &parts.namespace, |_| {});
        let mirror = Self {
            reflector: Reflector::new(parts.options.guard),
            session: Session::new(parts.options.access.clone()),
            options: parts.options,
            namespace: parts.namespace,
            selector: parts.selector,
            updates: parts.updates,
            wrap,
            status: parts.status,
            clock: parts.clock,
            was_synced: false,
            failing_since: None,
            logged: Logged::default(),
        };
        tasks.spawn(mirror.run());
    }

    async fn run(mut self) -> Result<(), Stopped> {
        loop {
            let step = self.reflector.poll_step(self.clock.now());
            match step {
                Step::Wait(until) => {
                    let timeout = self.reflector.poll_timeout();
                    let until = timeout.map_or(until, |timeout| timeout.min(until));
                    self.clock.sleep_until(Some(until)).await;
                    self.reflector.handle_timeout(self.clock.now());
                }
                Step::List { continue_token } => self.list(continue_token).await,
                Step::Watch { resource_version } => self.watch(&resource_version).await?,
            }
            self.publish().await?;
        }
    }

    async fn list(&mut self, continue_token: Option<String>) {
        let mut query = vec![("limit", PAGE_LIMIT)];
        if let Some(selector) = &self.selector {
            query.push(("labelSelector", selector));
        }
        if let Some(token) = &continue_token {
            query.push(("continue", token));
        }
        let target = target::<T>(&self.namespace, &query);
        match self.session.list(&target).await {
            Ok(page) => {
                self.reflector.handle_page(page, self.clock.now());
                self.succeeded();
            }
            Err(failure) => self.failed(&failure),
        }
    }

    /// Follows a watch until it ends.
    async fn watch(&mut self, resource_version: &str) -> Result<(), Stopped> {
        // Watches of many replicas and kinds do not end at the same time.
        let percent = 100 - draw() % 25;
        let timeout = self.options.watch_timeout.mul_f64(percent as f64 / 100.0);
        let seconds = timeout.as_secs().max(1).to_string();
        let mut query = vec![
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", &seconds),
        ];
        if let Some(selector) = &self.selector {
            query.push(("labelSelector", selector));
        }
        let target = target::<T>(&self.namespace, &query);
        let deadline = tokio::time::Instant::now() + timeout + self.options.watch_grace;
        let mut stream = match self.session.watch(&target, deadline).await {
            Ok(stream) => stream,
            Err(failure) => {
                self.failed(&failure);
                return Ok(());
            }
        };
        self.reflector.handle_watch_started();
        self.succeeded();
        let mut had_events = false;
        loop {
            let timeout = self.reflector.poll_timeout();
            let event = tokio::select! {
                event = stream.next() => event,
                () = self.clock.sleep_until(timeout) => {
                    self.reflector.handle_timeout(self.clock.now());
                    self.publish().await?;
                    continue;
                }
            };
            let now = self.clock.now();
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => {
                    self.reflector.handle_watch_end(had_events, draw(), now);
                    if !stream.is_finished() {
                        self.session.close();
                    }
                    return Ok(());
                }
                Err(failure) => {
                    self.session.close();
                    self.failed(&failure);
                    return Ok(());
                }
            };
            had_events = true;
            let handled = self.reflector.handle_event(&event, draw(), now);
            if let Err(failure) = handled {
                // The reflector knows; the rest of the answer is of no use.
                self.session.close();
                self.note_failure(&failure);
                return Ok(());
            }
            self.publish().await?;
        }
    }

    fn succeeded(&mut self) {
        if self.failing_since.take().is_some() {
            log_line!(
                log_lines::API_SERVER_BACK,
                kind = T::KIND,
                namespace = self.namespace
            );
            // A watch may be open for minutes before its first event.
            self.update_status();
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.reflector
            .handle_failure(failure, draw(), self.clock.now());
        self.note_failure(failure);
    }

    /// Records a failure that the reflector knows. That a version is gone, or that a CRD is not
    /// installed, is no failure of the API server.
    fn note_failure(&mut self, failure: &Failure) {
        let code = match failure {
            Failure::Status { status, .. } => status.code,
            Failure::Transport(_) => 0,
        };
        if code == 410 || self.reflector.is_missing() {
            return;
        }
        let now = self.clock.now();
        if self.failing_since.is_none() {
            let reason = failure.text();
            log_line!(
                log_lines::API_SERVER_LOST,
                kind = T::KIND,
                namespace = self.namespace,
                reason
            );
        }
        let since = *self.failing_since.get_or_insert(now);
        let reason = format!("{}: {}", T::PLURAL, failure.text());
        self.status.update(T::KIND, &self.namespace, |status| {
            status.failing = Some((since, reason));
        });
    }

    /// Passes on changes, and updates the status.
    async fn publish(&mut self) -> Result<(), Stopped> {
        let mut changes = Vec::new();
        while let Some(change) = self.reflector.poll_change() {
            changes.push(change);
        }
        let first_sync = self.reflector.is_synced() && !self.was_synced;
        self.was_synced = self.reflector.is_synced();
        self.update_status();
        self.log();
        if changes.is_empty() && !first_sync {
            return Ok(());
        }
        let update = (self.wrap)(Changes {
            changes,
            first_sync,
        });
        self.updates.send(update).await.map_err(|_| Stopped)
    }

    fn update_status(&self) {
        let now = self.clock.now();
        let reflector = &self.reflector;
        let is_failing = self.failing_since.is_some();
        self.status.update(T::KIND, &self.namespace, |status| {
            let counts = reflector.counts();
            let counts = SourceCounts {
                lists: counts.lists,
                events: counts.events,
                confirmations: counts.bookmarks,
                failures: counts.failures,
                resets: counts.gone,
            };
            let arrived =
                |counts: &SourceCounts| counts.events + counts.confirmations + counts.lists;
            if arrived(&counts) != arrived(&status.counts) {
                status.last_event = Some(now);
            }
            status.counts = counts;
            status.objects = reflector.len();
            status.is_synced = reflector.is_synced();
            status.is_missing = reflector.is_missing();
            status.held = reflector.held();
            status.is_connected = !is_failing;
            if !is_failing {
                status.failing = None;
            }
        });
    }

    fn log(&mut self) {
        let reflector = &self.reflector;
        let (kind, namespace) = (T::KIND, &self.namespace);
        let (held, invalid) = (reflector.held(), reflector.counts().invalid);
        if held > 0 && self.logged.held == 0 {
            let objects = reflector.len();
            log_line!(log_lines::REMOVAL_HELD, kind, namespace, held, objects);
        }
        if invalid > self.logged.invalid {
            log_line!(log_lines::OBJECT_INVALID, kind, namespace, invalid);
        }
        if reflector.is_missing() && !self.logged.is_missing {
            log_line!(log_lines::CRD_MISSING);
        }
        self.logged = Logged {
            held,
            invalid,
            is_missing: reflector.is_missing(),
        };
    }
}
