//! [`ListenerManager`]: the listeners in use, from the bootstrap file and from LDS.
//!
//! Sockets are bound when a listener is prepared and get connections once it is active. A listener
//! whose routes come from RDS is warmed first: it becomes active with its routes, and until then
//! its earlier version serves. Names, addresses, certificates and filters can change; connections
//! of the earlier version are drained. Called by the task of `run` only.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_serve::{Files, error_chain};
use tokio::time::Instant;

use crate::accept::{self, Command, Drain, WorkerThread};
use crate::config::ListenerConfig;
use crate::initialization::INITIAL_FETCH_TIMEOUT;
use crate::listener::{Listener, ListenerError, ListenerRuntime};
use crate::log_lines;
use crate::run::RunError;
use crate::state::{Origin, RunningListener, State};

pub(crate) struct ListenerManager {
    state: Arc<State>,
    threads: Vec<WorkerThread>,
    /// Listening sockets that the service manager has passed to this process.
    inherited: Arc<[StdListener]>,
    /// Listening sockets of the previous process, until startup has used them.
    handed_over: Vec<StdListener>,
    /// Second handles of the sockets of active listeners, for the next process. Dropped before the
    /// workers close theirs, which must be the last.
    open: Vec<(Arc<Listener>, Vec<StdListener>)>,
    warming: Vec<WarmingListener>,
    /// Certificates and keys of listeners from LDS. Those of the file are watched with the file.
    files: Files,
}

/// A listener whose files and sockets are open.
pub(crate) struct PreparedListener {
    runtime: ListenerRuntime,
    sockets: Sockets,
    address: SocketAddr,
    origin: Origin,
}

enum Sockets {
    /// An active listener has the same address: its sockets are used.
    Existing(Arc<Listener>),
    New(Vec<StdListener>),
}

struct WarmingListener {
    prepared: PreparedListener,
    deadline: Instant,
}

impl PreparedListener {
    pub(crate) fn name_and_address(&self) -> (String, SocketAddr) {
        (self.runtime.config.name.clone(), self.address)
    }

    /// Whether the routes of all filter chains are known; uses the newest ones.
    fn refresh_routes(&mut self, state: &State) -> bool {
        let mut known = true;
        for chain in self.runtime.chains_mut() {
            let Some(name) = chain.config().rds_name() else {
                continue;
            };
            match state.client.compiled_routes(name) {
                Some(table) => chain.routes = table,
                None => known = false,
            }
        }
        known
    }
}

impl ListenerManager {
    pub(crate) fn new(
        state: Arc<State>,
        threads: Vec<WorkerThread>,
        inherited: Arc<[StdListener]>,
        handed_over: Vec<StdListener>,
    ) -> Self {
        Self {
            state,
            threads,
            inherited,
            handed_over,
            open: Vec::new(),
            warming: Vec::new(),
            files: Files::default(),
        }
    }

    /// Opens files and sockets of listeners without using them yet. An error leaves no trace.
    pub(crate) fn prepare(
        &self,
        listeners: &[Arc<ListenerConfig>],
        origin: Origin,
    ) -> Result<Vec<PreparedListener>, RunError> {
        let mut prepared: Vec<PreparedListener> = Vec::new();
        for config in listeners {
            let used = |running: &RunningListener| {
                prepared.iter().any(|earlier| {
                    matches!(&earlier.sockets, Sockets::Existing(one)
                        if Arc::ptr_eq(one, &running.listener))
                })
            };
            let running = self.state.listeners().into_iter().find(|running| {
                running.origin == origin && running.has_address_of(config) && !used(running)
            });
            prepared.push(self.prepare_one(config, running, origin)?);
        }
        Ok(prepared)
    }

    fn prepare_one(
        &self,
        config: &Arc<ListenerConfig>,
        running: Option<RunningListener>,
        origin: Origin,
    ) -> Result<PreparedListener, RunError> {
        let runtime = ListenerRuntime::new(
            Arc::clone(config),
            &self.state.sinks,
            Some(&self.state.exporters),
        )
        .map_err(|error| listener_error(config, error))?;
        let (sockets, address) = match running {
            Some(running) => (Sockets::Existing(running.listener), running.address),
            None => {
                let sockets = self.bind(config.address)?;
                let bound = sockets.first().and_then(|socket| socket.local_addr().ok());
                (Sockets::New(sockets), bound.unwrap_or(config.address))
            }
        };
        let mut prepared = PreparedListener {
            runtime,
            sockets,
            address,
            origin,
        };
        prepared.refresh_routes(&self.state);
        Ok(prepared)
    }

    fn bind(&self, address: SocketAddr) -> Result<Vec<StdListener>, RunError> {
        let failed = |error| RunError::Bind(address, error);
        let existing = [&self.handed_over, &self.inherited[..]]
            .map(|sockets| plimsoll_serve::find_sockets(sockets, address).collect::<Vec<_>>());
        if let Some(existing) = existing.iter().find(|found| !found.is_empty()) {
            // Each of them must be served, and each worker needs one.
            let count = existing.len().max(self.state.workers);
            let shared = existing.iter().cycle().take(count);
            let clones = shared.map(|socket| socket.try_clone());
            return clones.collect::<Result<_, _>>().map_err(failed);
        }
        let first = accept::bind(address).map_err(failed)?;
        let bound = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        while sockets.len() < self.state.workers {
            sockets.push(accept::bind(bound).map_err(failed)?);
        }
        Ok(sockets)
    }

    fn bind_again(&self, config: &ListenerConfig) -> Vec<StdListener> {
        self.bind(config.address).unwrap_or_else(|error| {
            let error = error_chain(&error);
            log_line!(log_lines::BIND_FAILED, name = config.name, %error);
            Vec::new()
        })
    }

    /// Replaces all listeners of an origin. Those without routes become active later, except at
    /// startup, which waits for routes before and calls this with `warmed`.
    pub(crate) fn activate(
        &mut self,
        prepared: Vec<PreparedListener>,
        origin: Origin,
        warmed: bool,
    ) {
        let all: Vec<String> = prepared
            .iter()
            .map(|one| one.runtime.config.name.clone())
            .collect();
        self.warming.retain(|one| one.prepared.origin != origin);
        let mut replaced = Vec::new();
        for mut one in prepared {
            if one.refresh_routes(&self.state) || warmed {
                replaced.extend(self.activate_one(one));
            } else {
                let name = &one.runtime.config.name;
                log_line!(log_lines::LISTENER_WARMING, listener = name);
                self.warming.push(WarmingListener {
                    prepared: one,
                    deadline: Instant::now() + INITIAL_FETCH_TIMEOUT,
                });
            }
        }
        let stays = |one: &RunningListener| one.origin != origin || all.contains(&one.name);
        let removed = self.state.retain_listeners(stays);
        for listener in removed.into_iter().chain(replaced) {
            self.unlisten(&listener);
        }
    }

    /// Activates listeners whose routes have arrived, or whose time to wait for them is over.
    pub(crate) fn activate_warmed(&mut self) {
        let now = Instant::now();
        for mut one in std::mem::take(&mut self.warming) {
            if one.prepared.refresh_routes(&self.state) {
                self.replace(one.prepared);
            } else if one.deadline <= now {
                let name = &one.prepared.runtime.config.name;
                log_line!(log_lines::LISTENER_NOT_WARMED, listener = name);
                self.replace(one.prepared);
            } else {
                self.warming.push(one);
            }
        }
    }

    fn replace(&mut self, prepared: PreparedListener) {
        if let Some(replaced) = self.activate_one(prepared) {
            self.unlisten(&replaced);
        }
    }

    /// Starts a listener, or changes the active one that has its sockets. Returns the listener of
    /// the same name that it replaces at another address.
    fn activate_one(&mut self, prepared: PreparedListener) -> Option<RunningListener> {
        let config = Arc::clone(&prepared.runtime.config);
        let sockets = match prepared.sockets {
            // Removed while this listener was warmed.
            Sockets::Existing(current) if !self.state.is_active(&current) => {
                Sockets::New(self.bind_again(&config))
            }
            sockets => sockets,
        };
        let listener = match sockets {
            Sockets::Existing(current) => {
                let before = Arc::clone(&current.runtime().config);
                if before.differs_only_in_routes(&config) {
                    current.replace(prepared.runtime);
                    current
                } else {
                    let listener = Arc::new(current.successor(prepared.runtime));
                    self.send(|| Command::Replace {
                        old: Arc::clone(&current),
                        new: Arc::clone(&listener),
                    });
                    self.state.remove_listener(&current);
                    for (owner, _) in &mut self.open {
                        if Arc::ptr_eq(owner, &current) {
                            *owner = Arc::clone(&listener);
                        }
                    }
                    listener
                }
            }
            Sockets::New(sockets) => {
                let listener = Arc::new(Listener::new(prepared.runtime, self.state.workers));
                self.listen(&listener, sockets);
                listener
            }
        };
        let replaced = self.state.add_listener(RunningListener {
            name: config.name.clone(),
            configured: config.address,
            address: prepared.address,
            listener,
            origin: prepared.origin,
        });
        self.state.advance_route_epoch();
        replaced
    }

    /// Lets workers accept connections, each socket on one of them.
    fn listen(&mut self, listener: &Arc<Listener>, sockets: Vec<StdListener>) {
        let mut handles = Vec::new();
        for (socket, thread) in sockets.into_iter().zip(self.threads.iter().cycle()) {
            match accept::listen(&socket) {
                Ok(()) => {
                    handles.extend(socket.try_clone().ok());
                    thread.send(Command::Listen(Arc::clone(listener), socket));
                }
                Err(error) => {
                    let name = &listener.runtime().config.name;
                    log_line!(log_lines::BIND_FAILED, name, %error);
                }
            }
        }
        self.open.push((Arc::clone(listener), handles));
    }

    /// Returns the sockets of all active listeners, for the process that replaces this one.
    pub(crate) fn sockets(&self) -> Vec<StdListener> {
        let handles = self.open.iter().flat_map(|(_, handles)| handles);
        handles.filter_map(|one| one.try_clone().ok()).collect()
    }

    /// Closes sockets of the previous process that no listener uses.
    pub(crate) fn forget_handed_over(&mut self) {
        self.handed_over.clear();
    }

    /// Replaces the listeners of the management server. A listener that cannot be used leaves its
    /// earlier version in use.
    pub(crate) fn set_dynamic(&mut self, listeners: &[Arc<ListenerConfig>]) {
        let listed = |one: &RunningListener| {
            let mut names = listeners.iter().map(|config| &config.name);
            one.origin == Origin::File || names.any(|name| *name == one.name)
        };
        // Sockets of removed listeners are closed first: another listener may have their address.
        for removed in self.state.retain_listeners(listed) {
            self.unlisten(&removed);
        }
        self.warming
            .retain(|one| one.prepared.origin == Origin::File);
        self.files = Files::default();
        for (index, config) in listeners.iter().enumerate() {
            config.tls_files().for_each(|path| self.files.watch(path));
            match self.prepare_dynamic(config, &listeners[..index]) {
                Ok(prepared) => self.warming.push(WarmingListener {
                    prepared,
                    deadline: Instant::now() + INITIAL_FETCH_TIMEOUT,
                }),
                Err(error) => {
                    let listener = &config.name;
                    log_line!(log_lines::LISTENER_NOT_UPDATED, listener, %error);
                }
            }
        }
        self.activate_warmed();
    }

    fn prepare_dynamic(
        &self,
        config: &Arc<ListenerConfig>,
        earlier: &[Arc<ListenerConfig>],
    ) -> Result<PreparedListener, String> {
        let running = self.state.listeners();
        let conflicts = |one: &&RunningListener| {
            one.origin == Origin::File && (one.name == config.name || one.has_address_of(config))
        };
        if let Some(other) = running.iter().find(conflicts) {
            return Err(format!(
                "name or address is used by listener {:?} of the configuration file",
                other.name
            ));
        }
        let same = |one: &&Arc<ListenerConfig>| {
            one.address == config.address && config.address.port() != 0
        };
        if let Some(other) = earlier.iter().find(same) {
            return Err(format!("address is used by listener {:?}", other.name));
        }
        let same = running
            .into_iter()
            .find(|one| one.origin == Origin::Lds && one.has_address_of(config));
        self.prepare_one(config, same, Origin::Lds)
            .map_err(|error| error_chain(&error))
    }

    /// Whether a certificate or key of a listener from LDS has changed on disk.
    pub(crate) fn dynamic_files_changed(&self) -> bool {
        self.files.changed()
    }

    fn unlisten(&mut self, removed: &RunningListener) {
        self.open
            .retain(|(listener, _)| !Arc::ptr_eq(listener, &removed.listener));
        self.send(|| Command::Unlisten(Arc::clone(&removed.listener)));
    }

    fn send(&self, command: impl Fn() -> Command) {
        for thread in &self.threads {
            thread.send(command());
        }
    }

    /// Drains the connections, then joins the worker threads.
    pub(crate) async fn drain(mut self, drain: Drain) {
        self.open.clear();
        self.send(|| Command::Drain(drain));
        let threads: Vec<_> = self
            .threads
            .iter_mut()
            .filter_map(WorkerThread::take_handle)
            .collect();
        let joining = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        });
        let _ = joining.await;
    }
}

pub(crate) fn listener_error(listener: &ListenerConfig, error: ListenerError) -> RunError {
    RunError::Failed(format!("listener {:?}", listener.name), error.into())
}

#[cfg(test)]
mod tests;
