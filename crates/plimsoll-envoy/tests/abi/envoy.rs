//! The functions of Envoy that the module calls, with what a test prepares behind them.
#![expect(unsafe_code, reason = "takes the part of Envoy")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const UNHEALTHY: u32 = 0;
pub(crate) const DEGRADED: u32 = 1;
pub(crate) const HEALTHY: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    ptr: *const u8,
    length: usize,
}

impl Buffer {
    pub(crate) const fn new(text: &str) -> Self {
        Self {
            ptr: text.as_ptr(),
            length: text.len(),
        }
    }

    /// Reads a buffer that the module passed.
    pub(crate) fn text(self) -> String {
        // SAFETY: the module passes text that lives during the call.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr, self.length) };
        String::from_utf8(bytes.to_vec()).unwrap()
    }
}

pub(crate) struct Host {
    pub(crate) address: &'static str,
    pub(crate) locality: [&'static str; 3],
    pub(crate) health: u32,
    pub(crate) active: u64,
    pub(crate) status: &'static str,
}

pub(crate) const fn host(address: &'static str, zone: &'static str, health: u32) -> Host {
    Host {
        address,
        locality: ["r", zone, "s"],
        health,
        active: 0,
        status: "",
    }
}

/// Envoy's load balancer object: one priority, and weights of localities by zone.
pub(crate) struct Lb {
    pub(crate) name: &'static str,
    pub(crate) hosts: Vec<Host>,
    pub(crate) weights: Vec<(&'static str, u32)>,
}

impl Lb {
    /// # Safety
    ///
    /// `lb` is a pointer that the test passed to a hook of the module.
    pub(crate) unsafe fn of<'a>(lb: *mut c_void) -> &'a Self {
        // SAFETY: the test keeps the object alive during the hook.
        unsafe { &*lb.cast::<Self>() }
    }

    pub(crate) fn ptr(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn host(&self, priority: u32, index: usize) -> Option<&Host> {
        assert_eq!(priority, 0);
        self.hosts.get(index)
    }

    pub(crate) fn healthy(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.health == HEALTHY)
    }
}

/// Context of a request, and stream of a filter.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) hash: Option<u64>,
    pub(crate) reselections: u32,
    pub(crate) rejected: Vec<usize>,
    pub(crate) cluster: &'static str,
    pub(crate) upstream: &'static str,
    pub(crate) headers: Vec<(u32, &'static str, &'static str)>,
    pub(crate) override_host: Mutex<Option<(String, bool)>>,
    /// Headers of the request that the module set.
    pub(crate) set: Mutex<Vec<(String, String)>>,
}

impl Request {
    /// # Safety
    ///
    /// As for [`Lb::of`]; null is no request.
    pub(crate) unsafe fn of<'a>(request: *mut c_void) -> Option<&'a Self> {
        // SAFETY: the test keeps the object alive during the hook.
        unsafe { request.cast::<Self>().as_ref() }
    }

    pub(crate) fn ptr(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }
}

/// What the module did to its configuration and to the log.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) log: Vec<(u32, String)>,
    /// Names and labels of metrics; the number of a metric is its position.
    pub(crate) metrics: Vec<(&'static str, String, Vec<String>)>,
    /// Name of the metric, labels, value.
    pub(crate) writes: Vec<(String, Vec<String>, u64)>,
}

static SEEN: Mutex<Option<Seen>> = Mutex::new(None);

pub(crate) fn seen<T>(work: impl FnOnce(&mut Seen) -> T) -> T {
    let mut guard = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    work(guard.get_or_insert_default())
}

/// Tests share the process, its clusters and the log: one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    seen(|seen| *seen = Seen::default());
    guard
}

/// # Safety
///
/// `labels` points to `count` buffers.
pub(crate) unsafe fn labels(labels: *const Buffer, count: usize) -> Vec<String> {
    // SAFETY: by the contract above.
    let labels = unsafe { std::slice::from_raw_parts(labels, count) };
    labels.iter().map(|label| label.text()).collect()
}

/// # Safety
///
/// `result` is writable.
pub(crate) unsafe fn give(result: *mut Buffer, text: Option<&'static str>) -> bool {
    if let Some(text) = text {
        // SAFETY: by the contract above.
        unsafe { result.write(Buffer::new(text)) };
    }
    text.is_some()
}

/// Defines functions of Envoy. Their arguments come from the module, which passes what the test
/// gave it, and writable results.
macro_rules! envoy {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) $(-> $result)? $body
    )*};
}

envoy! {
    envoy_dynamic_module_callback_log(level: u32, message: Buffer) {
        seen(|seen| seen.log.push((level, message.text())));
    }

    envoy_dynamic_module_callback_log_enabled(level: u32) -> bool {
        level >= 2
    }

    envoy_dynamic_module_callback_is_validation_mode() -> bool {
        false
    }

    envoy_dynamic_module_callback_lb_config_define_counter(
        _config: *mut c_void, name: Buffer, names: *const Buffer, count: usize, id: *mut usize
    ) -> u32 {
        define("counter", name, names, count, id)
    }

    envoy_dynamic_module_callback_lb_config_define_gauge(
        _config: *mut c_void, name: Buffer, names: *const Buffer, count: usize, id: *mut usize
    ) -> u32 {
        define("gauge", name, names, count, id)
    }

    envoy_dynamic_module_callback_lb_config_increment_counter(
        _config: *mut c_void, id: usize, values: *const Buffer, count: usize, value: u64
    ) -> u32 {
        write("counter", id, values, count, value)
    }

    envoy_dynamic_module_callback_lb_config_set_gauge(
        _config: *mut c_void, id: usize, values: *const Buffer, count: usize, value: u64
    ) -> u32 {
        write("gauge", id, values, count, value)
    }

    envoy_dynamic_module_callback_lb_get_cluster_name(lb: *mut c_void, result: *mut Buffer) {
        // SAFETY: see the macro.
        let lb = unsafe { Lb::of(lb) };
        // SAFETY: see the macro.
        unsafe { give(result, Some(lb.name)) };
    }

    envoy_dynamic_module_callback_lb_get_priority_set_size(_lb: *mut c_void) -> usize {
        1
    }

    envoy_dynamic_module_callback_lb_get_hosts_count(lb: *mut c_void, _priority: u32) -> usize {
        // SAFETY: see the macro.
        unsafe { Lb::of(lb) }.hosts.len()
    }

    envoy_dynamic_module_callback_lb_get_healthy_hosts_count(
        lb: *mut c_void, _priority: u32
    ) -> usize {
        // SAFETY: see the macro.
        unsafe { Lb::of(lb) }.healthy().count()
    }

    envoy_dynamic_module_callback_lb_get_host_address(
        lb: *mut c_void, priority: u32, index: usize, result: *mut Buffer
    ) -> bool {
        // SAFETY: see the macro.
        let host = unsafe { Lb::of(lb) }.host(priority, index);
        // SAFETY: see the macro.
        unsafe { give(result, host.map(|host| host.address)) }
    }

    envoy_dynamic_module_callback_lb_get_healthy_host_address(
        lb: *mut c_void, _priority: u32, index: usize, result: *mut Buffer
    ) -> bool {
        // SAFETY: see the macro.
        let host = unsafe { Lb::of(lb) }.healthy().nth(index);
        // SAFETY: see the macro.
        unsafe { give(result, host.map(|host| host.address)) }
    }

    envoy_dynamic_module_callback_lb_get_host_weight(
        _lb: *mut c_void, _priority: u32, _index: usize
    ) -> u32 {
        7
    }

    envoy_dynamic_module_callback_lb_get_host_health(
        lb: *mut c_void, priority: u32, index: usize
    ) -> u32 {
        // SAFETY: see the macro.
        let host = unsafe { Lb::of(lb) }.host(priority, index);
        host.map_or(UNHEALTHY, |host| host.health)
    }

    envoy_dynamic_module_callback_lb_get_host_locality(
        lb: *mut c_void, priority: u32, index: usize,
        region: *mut Buffer, zone: *mut Buffer, sub_zone: *mut Buffer
    ) -> bool {
        // SAFETY: see the macro.
        let Some(host) = unsafe { Lb::of(lb) }.host(priority, index) else {
            return false;
        };
        for (result, text) in [region, zone, sub_zone].into_iter().zip(host.locality) {
            // SAFETY: see the macro.
            unsafe { give(result, Some(text)) };
        }
        true
    }

    envoy_dynamic_module_callback_lb_get_host_metadata_string(
        lb: *mut c_void, priority: u32, index: usize, filter: Buffer, key: Buffer,
        result: *mut Buffer
    ) -> bool {
        assert_eq!((filter.text(), key.text()), ("plimsoll".into(), "health_status".into()));
        // SAFETY: see the macro.
        let host = unsafe { Lb::of(lb) }.host(priority, index);
        let status = host.map(|host| host.status).filter(|status| !status.is_empty());
        // SAFETY: see the macro.
        unsafe { give(result, status) }
    }

    envoy_dynamic_module_callback_lb_get_host_stat(
        lb: *mut c_void, priority: u32, index: usize, stat: u32
    ) -> u64 {
        assert_eq!(stat, 7, "rq_active");
        // SAFETY: see the macro.
        let host = unsafe { Lb::of(lb) }.host(priority, index);
        host.map_or(0, |host| host.active)
    }

    envoy_dynamic_module_callback_lb_get_locality_count(
        lb: *mut c_void, _priority: u32
    ) -> usize {
        // SAFETY: see the macro.
        unsafe { Lb::of(lb) }.weights.len()
    }

    envoy_dynamic_module_callback_lb_get_locality_weight(
        lb: *mut c_void, _priority: u32, locality: usize
    ) -> u32 {
        // SAFETY: see the macro.
        unsafe { Lb::of(lb) }.weights[locality].1
    }

    envoy_dynamic_module_callback_lb_get_locality_host_address(
        lb: *mut c_void, _priority: u32, locality: usize, host: usize, result: *mut Buffer
    ) -> bool {
        // SAFETY: see the macro.
        let lb = unsafe { Lb::of(lb) };
        let zone = lb.weights[locality].0;
        let found = lb.healthy().filter(|host| host.locality[1] == zone).nth(host);
        // SAFETY: see the macro.
        unsafe { give(result, found.map(|host| host.address)) }
    }

    envoy_dynamic_module_callback_lb_context_compute_hash_key(
        context: *mut c_void, hash: *mut u64
    ) -> bool {
        // SAFETY: see the macro.
        let found = unsafe { Request::of(context) }.and_then(|request| request.hash);
        if let Some(found) = found {
            // SAFETY: see the macro.
            unsafe { hash.write(found) };
        }
        found.is_some()
    }

    envoy_dynamic_module_callback_lb_context_get_host_selection_retry_count(
        context: *mut c_void
    ) -> u32 {
        // SAFETY: see the macro.
        unsafe { Request::of(context) }.map_or(0, |request| request.reselections)
    }

    envoy_dynamic_module_callback_lb_context_should_select_another_host(
        _lb: *mut c_void, context: *mut c_void, _priority: u32, index: usize
    ) -> bool {
        // SAFETY: see the macro.
        unsafe { Request::of(context) }.is_some_and(|request| request.rejected.contains(&index))
    }

    envoy_dynamic_module_callback_http_get_header(
        filter: *mut c_void, kind: u32, key: Buffer, result: *mut Buffer, _index: usize,
        _size: *mut usize
    ) -> bool {
        // SAFETY: see the macro.
        let request = unsafe { Request::of(filter) }.unwrap();
        let key = key.text();
        let mut headers = request.headers.iter();
        let found = headers.find(|(one, name, _)| *one == kind && *name == key);
        // SAFETY: see the macro.
        unsafe { give(result, found.map(|(.., value)| *value)) }
    }

    envoy_dynamic_module_callback_http_set_header(
        filter: *mut c_void, kind: u32, key: Buffer, value: Buffer
    ) -> bool {
        assert_eq!(kind, 0, "request headers");
        // SAFETY: see the macro.
        let request = unsafe { Request::of(filter) }.unwrap();
        request.set.lock().unwrap().push((key.text(), value.text()));
        true
    }

    envoy_dynamic_module_callback_http_filter_get_attribute_string(
        filter: *mut c_void, attribute: u32, result: *mut Buffer
    ) -> bool {
        assert_eq!(attribute, 41, "upstream.address");
        // SAFETY: see the macro.
        let request = unsafe { Request::of(filter) }.unwrap();
        let known = Some(request.upstream).filter(|address| !address.is_empty());
        // SAFETY: see the macro.
        unsafe { give(result, known) }
    }

    envoy_dynamic_module_callback_http_get_cluster_name(
        filter: *mut c_void, result: *mut Buffer
    ) -> bool {
        // SAFETY: see the macro.
        let request = unsafe { Request::of(filter) }.unwrap();
        let known = Some(request.cluster).filter(|name| !name.is_empty());
        // SAFETY: see the macro.
        unsafe { give(result, known) }
    }

    envoy_dynamic_module_callback_http_set_upstream_override_host(
        filter: *mut c_void, host: Buffer, strict: bool
    ) -> bool {
        // SAFETY: see the macro.
        let request = unsafe { Request::of(filter) }.unwrap();
        *request.override_host.lock().unwrap() = Some((host.text(), strict));
        true
    }
}

pub(crate) fn define(
    kind: &'static str,
    name: Buffer,
    names: *const Buffer,
    count: usize,
    id: *mut usize,
) -> u32 {
    // SAFETY: the module passes `count` names.
    let names = unsafe { labels(names, count) };
    let next = seen(|seen| {
        seen.metrics.push((kind, name.text(), names));
        seen.metrics.len() - 1
    });
    // SAFETY: the module passes a writable number.
    unsafe { id.write(next) };
    0
}

pub(crate) fn write(kind: &str, id: usize, values: *const Buffer, count: usize, value: u64) -> u32 {
    // SAFETY: the module passes `count` values.
    let values = unsafe { labels(values, count) };
    seen(|seen| {
        let (defined, name, labels) = &seen.metrics[id];
        assert_eq!((*defined, labels.len()), (kind, values.len()), "{name}");
        let name = name.clone();
        seen.writes.push((name, values, value));
    });
    0
}
