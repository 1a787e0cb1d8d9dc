//! Safe access to Envoy from inside a hook.
//!
//! [`Lb`] and [`Context`] are created by `hooks` from the pointers that Envoy passes, and borrow
//! for the duration of the hook. Strings that Envoy returns live in its host and cluster objects,
//! which Envoy keeps alive during the hook, so they may be borrowed as long as the [`Lb`].
#![expect(unsafe_code, reason = "calls into Envoy")]

use std::marker::PhantomData;

use plimsoll_xds::wire::MODULE_METADATA;

use crate::abi::{self, ConfigPtr, ContextPtr, EnvoyBuffer, FilterPtr, LbPtr, ModuleBuffer};
use crate::host_sets::HostSets;
use crate::load_balancer::Request;
use crate::log::Level;
use crate::metrics::{MetricId, MetricKind, Metrics, PickMetrics};
use crate::orca::Headers;

/// Envoy's load balancer object, valid during one hook.
pub(crate) struct Lb<'hook> {
    ptr: LbPtr,
    hook: PhantomData<&'hook ()>,
}

impl Lb<'_> {
    /// Wraps the pointer that Envoy passed to a hook.
    ///
    /// # Safety
    ///
    /// `ptr` is the load balancer of the running hook, and the value does not outlive the hook.
    pub(crate) const unsafe fn new(ptr: LbPtr) -> Self {
        Self {
            ptr,
            hook: PhantomData,
        }
    }

    pub(crate) fn cluster_name(&self) -> String {
        let mut name = EnvoyBuffer::EMPTY;
        // SAFETY: `ptr` is valid during the hook, and `name` is writable.
        unsafe { abi::envoy_dynamic_module_callback_lb_get_cluster_name(self.ptr, &raw mut name) };
        self.text(name).to_owned()
    }

    /// Returns a string of Envoy; empty if it is not UTF-8, which no address or name is.
    fn text(&self, buffer: EnvoyBuffer) -> &str {
        // SAFETY: the buffer was returned for this load balancer during this hook.
        let bytes = unsafe { borrow(buffer) };
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// Borrows bytes of Envoy.
///
/// # Safety
///
/// `buffer` was returned by Envoy, and its owner lives as long as `'a`.
pub(crate) unsafe fn borrow<'a>(buffer: EnvoyBuffer) -> &'a [u8] {
    if buffer.ptr.is_null() || buffer.length == 0 {
        return &[];
    }
    // SAFETY: Envoy returned `length` bytes at `ptr`, which its owner keeps alive and unchanged.
    unsafe { std::slice::from_raw_parts(buffer.ptr, buffer.length) }
}

impl HostSets for Lb<'_> {
    fn priorities(&self) -> u32 {
        // SAFETY: `ptr` is valid during the hook.
        let size = unsafe { abi::envoy_dynamic_module_callback_lb_get_priority_set_size(self.ptr) };
        u32::try_from(size).unwrap_or_default()
    }

    fn hosts(&self, priority: u32) -> usize {
        // SAFETY: `ptr` is valid during the hook; Envoy checks the priority.
        unsafe { abi::envoy_dynamic_module_callback_lb_get_hosts_count(self.ptr, priority) }
    }

    fn healthy_hosts(&self, priority: u32) -> usize {
        // SAFETY: as above.
        unsafe { abi::envoy_dynamic_module_callback_lb_get_healthy_hosts_count(self.ptr, priority) }
    }

    fn address(&self, priority: u32, index: usize) -> &str {
        let mut result = EnvoyBuffer::EMPTY;
        // SAFETY: `ptr` is valid, `result` is writable, and Envoy checks the numbers.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_lb_get_host_address(
                self.ptr,
                priority,
                index,
                &raw mut result,
            )
        };
        if found { self.text(result) } else { "" }
    }

    fn healthy_address(&self, priority: u32, index: usize) -> &str {
        let mut result = EnvoyBuffer::EMPTY;
        // SAFETY: as for `address`.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_lb_get_healthy_host_address(
                self.ptr,
                priority,
                index,
                &raw mut result,
            )
        };
        if found { self.text(result) } else { "" }
    }

    fn weight(&self, priority: u32, index: usize) -> u32 {
        // SAFETY: `ptr` is valid during the hook; Envoy checks the numbers.
        unsafe { abi::envoy_dynamic_module_callback_lb_get_host_weight(self.ptr, priority, index) }
    }

    fn is_degraded(&self, priority: u32, index: usize) -> bool {
        // SAFETY: as for `weight`.
        let health = unsafe {
            abi::envoy_dynamic_module_callback_lb_get_host_health(self.ptr, priority, index)
        };
        health == abi::HOST_HEALTH_DEGRADED
    }

    fn metadata(&self, priority: u32, index: usize, key: &str) -> &str {
        let mut result = EnvoyBuffer::EMPTY;
        // SAFETY: as for `address`; Envoy reads name and key during the call.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_lb_get_host_metadata_string(
                self.ptr,
                priority,
                index,
                ModuleBuffer::new(MODULE_METADATA),
                ModuleBuffer::new(key),
                &raw mut result,
            )
        };
        if found { self.text(result) } else { "" }
    }

    fn locality(&self, priority: u32, index: usize) -> [&str; 3] {
        let mut parts = [EnvoyBuffer::EMPTY; 3];
        let [region, zone, sub_zone] = &mut parts;
        // SAFETY: `ptr` is valid, the three results are writable, and Envoy checks the numbers.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_lb_get_host_locality(
                self.ptr, priority, index, region, zone, sub_zone,
            )
        };
        if found {
            parts.map(|part| self.text(part))
        } else {
            [""; 3]
        }
    }

    fn localities(&self, priority: u32) -> usize {
        // SAFETY: `ptr` is valid during the hook; Envoy checks the priority.
        unsafe { abi::envoy_dynamic_module_callback_lb_get_locality_count(self.ptr, priority) }
    }

    fn locality_weight(&self, priority: u32, locality: usize) -> u32 {
        // SAFETY: as for `weight`.
        unsafe {
            abi::envoy_dynamic_module_callback_lb_get_locality_weight(self.ptr, priority, locality)
        }
    }

    fn locality_member(&self, priority: u32, locality: usize) -> &str {
        let mut result = EnvoyBuffer::EMPTY;
        // SAFETY: as for `address`.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_lb_get_locality_host_address(
                self.ptr,
                priority,
                locality,
                0,
                &raw mut result,
            )
        };
        if found { self.text(result) } else { "" }
    }

    fn active_requests(&self, priority: u32, index: usize) -> u64 {
        let stat = abi::HOST_STAT_RQ_ACTIVE;
        // SAFETY: as for `weight`.
        unsafe {
            abi::envoy_dynamic_module_callback_lb_get_host_stat(self.ptr, priority, index, stat)
        }
    }
}

/// The request that a host is chosen for.
pub(crate) struct Context<'hook> {
    lb: &'hook Lb<'hook>,
    /// Null for requests of Envoy itself; the functions below accept that.
    ptr: ContextPtr,
}

impl<'hook> Context<'hook> {
    /// Wraps the pointer that Envoy passed to `on_lb_choose_host`.
    ///
    /// # Safety
    ///
    /// `ptr` is the context of the running hook or null.
    pub(crate) const unsafe fn new(lb: &'hook Lb<'hook>, ptr: ContextPtr) -> Self {
        Self { lb, ptr }
    }
}

impl Request for Context<'_> {
    fn hash(&self) -> Option<u64> {
        let mut hash = 0;
        // SAFETY: Envoy accepts a null context; `hash` is writable.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_lb_context_compute_hash_key(self.ptr, &raw mut hash)
        };
        found.then_some(hash)
    }

    fn reselections(&self) -> u32 {
        // SAFETY: Envoy accepts a null context.
        unsafe {
            abi::envoy_dynamic_module_callback_lb_context_get_host_selection_retry_count(self.ptr)
        }
    }

    fn rejects(&self, priority: u32, index: usize) -> bool {
        // SAFETY: the load balancer is valid during the hook, and Envoy accepts a null context.
        unsafe {
            abi::envoy_dynamic_module_callback_lb_context_should_select_another_host(
                self.lb.ptr,
                self.ptr,
                priority,
                index,
            )
        }
    }
}

/// A stream of an HTTP filter, valid during one hook.
pub(crate) struct Stream<'hook> {
    ptr: FilterPtr,
    hook: PhantomData<&'hook ()>,
}

impl<'hook> Stream<'hook> {
    /// Wraps the pointer that Envoy passed to a hook of the filter.
    ///
    /// # Safety
    ///
    /// `ptr` is the filter of the running hook, and the value does not outlive the hook.
    pub(crate) const unsafe fn new(ptr: FilterPtr) -> Self {
        Self {
            ptr,
            hook: PhantomData,
        }
    }

    /// Returns the address of the upstream host; empty if none was chosen.
    pub(crate) fn upstream_address(&self) -> &str {
        let mut address = EnvoyBuffer::EMPTY;
        // SAFETY: `ptr` is valid during the hook, and `address` is writable.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_http_filter_get_attribute_string(
                self.ptr,
                abi::UPSTREAM_ADDRESS,
                &raw mut address,
            )
        };
        if !found {
            return "";
        }
        // SAFETY: the address belongs to the host, which the stream keeps alive during the hook.
        let bytes = unsafe { borrow(address) };
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns the name of the cluster that the request is routed to; empty if it is not known.
    pub(crate) fn cluster_name(&self) -> &str {
        let mut name = EnvoyBuffer::EMPTY;
        // SAFETY: `ptr` is valid during the hook, and `name` is writable.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_http_get_cluster_name(self.ptr, &raw mut name)
        };
        if !found {
            return "";
        }
        // SAFETY: the name belongs to the cluster, which the stream keeps alive during the hook.
        let bytes = unsafe { borrow(name) };
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Asks for a host of the cluster. If Envoy does not accept it, the policy chooses.
    pub(crate) fn override_host(&self, address: &str) {
        // SAFETY: `ptr` is valid during the hook, and Envoy copies the address during the call.
        unsafe {
            abi::envoy_dynamic_module_callback_http_set_upstream_override_host(
                self.ptr,
                ModuleBuffer::new(address),
                false,
            )
        };
    }

    /// Returns the request headers.
    pub(crate) const fn request_headers(&self) -> HeaderMap<'_> {
        HeaderMap {
            stream: self,
            kind: abi::REQUEST_HEADERS,
        }
    }

    /// Sets a header of the request, instead of one that it has.
    pub(crate) fn set_request_header(&self, name: &str, value: &str) {
        // SAFETY: `ptr` is valid during the hook, and Envoy copies both texts during the call.
        unsafe {
            abi::envoy_dynamic_module_callback_http_set_header(
                self.ptr,
                abi::REQUEST_HEADERS,
                ModuleBuffer::new(name),
                ModuleBuffer::new(value),
            )
        };
    }

    /// Returns the response headers.
    pub(crate) const fn headers(&self) -> HeaderMap<'_> {
        HeaderMap {
            stream: self,
            kind: abi::RESPONSE_HEADERS,
        }
    }

    /// Returns the response trailers.
    pub(crate) const fn trailers(&self) -> HeaderMap<'_> {
        HeaderMap {
            stream: self,
            kind: abi::RESPONSE_TRAILERS,
        }
    }
}

/// Headers of a request or response, or trailers.
pub(crate) struct HeaderMap<'hook> {
    stream: &'hook Stream<'hook>,
    kind: u32,
}

impl Headers for HeaderMap<'_> {
    fn get(&self, name: &str) -> Option<&[u8]> {
        let mut value = EnvoyBuffer::EMPTY;
        let mut count = 0;
        // SAFETY: the stream is valid during the hook, Envoy reads the name during the call, and
        // both results are writable.
        let found = unsafe {
            abi::envoy_dynamic_module_callback_http_get_header(
                self.stream.ptr,
                self.kind,
                ModuleBuffer::new(name),
                &raw mut value,
                0,
                &raw mut count,
            )
        };
        // SAFETY: Envoy keeps the headers during the hook.
        found.then(|| unsafe { borrow(value) })
    }
}

/// Metrics of one configuration. Used in hooks of its load balancers only, on threads of Envoy, and
/// by one of them at a time (`PickMetrics`).
struct ConfigMetrics(ConfigPtr);

// SAFETY: Envoy keeps the configuration until its last load balancer is destroyed, and its threads
// may all use it.
unsafe impl Send for ConfigMetrics {}
// SAFETY: `PickMetrics` lets one thread write at a time.
unsafe impl Sync for ConfigMetrics {}

impl Metrics for ConfigMetrics {
    fn add(&self, id: MetricId, cluster: &str, value: u64) {
        let label = ModuleBuffer::new(cluster);
        // SAFETY: the configuration lives while its load balancers do; Envoy reads the label during
        // the call.
        unsafe {
            abi::envoy_dynamic_module_callback_lb_config_increment_counter(
                self.0,
                id,
                &raw const label,
                1,
                value,
            )
        };
    }

    fn set_total(&self, id: MetricId, cluster: &str, value: u64) {
        self.set_gauge(id, &[ModuleBuffer::new(cluster)], value);
    }

    fn set(&self, id: MetricId, cluster: &str, zone: &str, value: u64) {
        self.set_gauge(id, &[cluster, zone].map(ModuleBuffer::new), value);
    }
}

impl ConfigMetrics {
    fn set_gauge(&self, id: MetricId, labels: &[ModuleBuffer], value: u64) {
        // SAFETY: the configuration lives while its load balancers do; Envoy reads the labels
        // during the call.
        unsafe {
            abi::envoy_dynamic_module_callback_lb_config_set_gauge(
                self.0,
                id,
                labels.as_ptr(),
                labels.len(),
                value,
            )
        };
    }
}

/// Defines the metrics of a configuration, which Envoy allows in `on_lb_config_new` only.
///
/// # Safety
///
/// `config` is the configuration of the running `on_lb_config_new`.
pub(crate) unsafe fn define_metrics(config: ConfigPtr) -> PickMetrics {
    PickMetrics::new(Box::new(ConfigMetrics(config)), |kind, name| {
        let labels = ["cluster", "zone"].map(ModuleBuffer::new);
        let labels_length = match kind {
            MetricKind::Counter | MetricKind::ClusterGauge => 1,
            MetricKind::Gauge => 2,
        };
        let name = ModuleBuffer::new(name);
        let mut id = 0;
        let result = match kind {
            // SAFETY: the configuration is valid during the hook, Envoy copies name and label, and
            // `id` is writable.
            MetricKind::Counter => unsafe {
                abi::envoy_dynamic_module_callback_lb_config_define_counter(
                    config,
                    name,
                    labels.as_ptr(),
                    labels_length,
                    &raw mut id,
                )
            },
            // SAFETY: as above.
            MetricKind::ClusterGauge | MetricKind::Gauge => unsafe {
                abi::envoy_dynamic_module_callback_lb_config_define_gauge(
                    config,
                    name,
                    labels.as_ptr(),
                    labels_length,
                    &raw mut id,
                )
            },
        };
        (result == 0).then_some(id)
    })
}

/// Writes a line to Envoy's log.
pub(crate) fn log(level: Level, line: &str) {
    let level = level as u32;
    // SAFETY: no arguments besides the number.
    if unsafe { abi::envoy_dynamic_module_callback_log_enabled(level) } {
        // SAFETY: Envoy copies the text during the call.
        unsafe { abi::envoy_dynamic_module_callback_log(level, ModuleBuffer::new(line)) };
    }
}

/// Whether Envoy only validates its configuration. To be called on the main thread.
pub(crate) fn is_validation_mode() -> bool {
    // SAFETY: no arguments; `hooks` calls it from `on_lb_config_new`, on the main thread.
    unsafe { abi::envoy_dynamic_module_callback_is_validation_mode() }
}

/// Whether the running Envoy exports a callback. `name` ends with a zero byte.
pub(crate) fn exports(name: &std::ffi::CStr) -> bool {
    // SAFETY: a null handle searches the symbols of the program; `name` is a C string.
    let found = unsafe { abi::dlsym(std::ptr::null_mut(), name.as_ptr()) };
    !found.is_null()
}
