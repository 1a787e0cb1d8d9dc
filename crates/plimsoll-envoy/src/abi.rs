//! C functions and types of Envoy's dynamic module ABI, as far as this crate uses them.
//!
//! All functions exist in Envoy 1.38, 1.39 and 1.40 with the same signatures; a test compares the
//! imports of the library with the symbols of the released binaries. The library is linked with
//! immediate binding, so a function that one release lacks would keep the module from loading
//! there.
//! Names, types and ownership follow `source/extensions/dynamic_modules/abi/abi.h` of Envoy.
#![expect(unsafe_code, reason = "declares functions of Envoy")]

use std::ffi::{c_char, c_void};

/// Bytes owned by Envoy; valid during the hook that got them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EnvoyBuffer {
    pub(crate) ptr: *const u8,
    pub(crate) length: usize,
}

impl EnvoyBuffer {
    pub(crate) const EMPTY: Self = Self {
        ptr: std::ptr::null(),
        length: 0,
    };
}

/// Bytes owned by the module; Envoy reads them during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ModuleBuffer {
    pub(crate) ptr: *const u8,
    pub(crate) length: usize,
}

impl ModuleBuffer {
    pub(crate) const fn new(text: &str) -> Self {
        Self {
            ptr: text.as_ptr(),
            length: text.len(),
        }
    }
}

/// Number of `rq_active` in `envoy_dynamic_module_type_host_stat`.
pub(crate) const HOST_STAT_RQ_ACTIVE: u32 = 7;
/// Number of `Degraded` in `envoy_dynamic_module_type_host_health`.
pub(crate) const HOST_HEALTH_DEGRADED: u32 = 1;

/// Which headers a filter reads or sets (`envoy_dynamic_module_type_http_header_type`).
pub(crate) const REQUEST_HEADERS: u32 = 0;
pub(crate) const RESPONSE_HEADERS: u32 = 2;
pub(crate) const RESPONSE_TRAILERS: u32 = 3;
/// Number of `upstream.address` in `envoy_dynamic_module_type_attribute_id`.
pub(crate) const UPSTREAM_ADDRESS: u32 = 41;

/// Envoy's configuration object of one cluster.
pub(crate) type ConfigPtr = *mut c_void;
/// Envoy's HTTP filter object of one stream.
pub(crate) type FilterPtr = *mut c_void;
/// Envoy's load balancer object of one thread.
pub(crate) type LbPtr = *mut c_void;
/// Envoy's `LoadBalancerContext` of one request; may be null.
pub(crate) type ContextPtr = *mut c_void;

unsafe extern "C" {
    pub(crate) fn envoy_dynamic_module_callback_log(level: u32, message: ModuleBuffer);
    pub(crate) fn envoy_dynamic_module_callback_log_enabled(level: u32) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_is_validation_mode() -> bool;

    pub(crate) fn envoy_dynamic_module_callback_lb_config_define_counter(
        config: ConfigPtr,
        name: ModuleBuffer,
        labels: *const ModuleBuffer,
        labels_length: usize,
        id: *mut usize,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_config_increment_counter(
        config: ConfigPtr,
        id: usize,
        labels: *const ModuleBuffer,
        labels_length: usize,
        value: u64,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_config_define_gauge(
        config: ConfigPtr,
        name: ModuleBuffer,
        labels: *const ModuleBuffer,
        labels_length: usize,
        id: *mut usize,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_config_set_gauge(
        config: ConfigPtr,
        id: usize,
        labels: *const ModuleBuffer,
        labels_length: usize,
        value: u64,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_cluster_name(
        lb: LbPtr,
        result: *mut EnvoyBuffer,
    );
    pub(crate) fn envoy_dynamic_module_callback_lb_get_priority_set_size(lb: LbPtr) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_hosts_count(
        lb: LbPtr,
        priority: u32,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_healthy_hosts_count(
        lb: LbPtr,
        priority: u32,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_host_address(
        lb: LbPtr,
        priority: u32,
        index: usize,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_healthy_host_address(
        lb: LbPtr,
        priority: u32,
        index: usize,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_host_weight(
        lb: LbPtr,
        priority: u32,
        index: usize,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_host_health(
        lb: LbPtr,
        priority: u32,
        index: usize,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_host_locality(
        lb: LbPtr,
        priority: u32,
        index: usize,
        region: *mut EnvoyBuffer,
        zone: *mut EnvoyBuffer,
        sub_zone: *mut EnvoyBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_host_metadata_string(
        lb: LbPtr,
        priority: u32,
        index: usize,
        filter: ModuleBuffer,
        key: ModuleBuffer,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_host_stat(
        lb: LbPtr,
        priority: u32,
        index: usize,
        stat: u32,
    ) -> u64;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_locality_count(
        lb: LbPtr,
        priority: u32,
    ) -> usize;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_locality_weight(
        lb: LbPtr,
        priority: u32,
        locality: usize,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_get_locality_host_address(
        lb: LbPtr,
        priority: u32,
        locality: usize,
        host: usize,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_lb_context_compute_hash_key(
        context: ContextPtr,
        hash: *mut u64,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_lb_context_get_host_selection_retry_count(
        context: ContextPtr,
    ) -> u32;
    pub(crate) fn envoy_dynamic_module_callback_lb_context_should_select_another_host(
        lb: LbPtr,
        context: ContextPtr,
        priority: u32,
        index: usize,
    ) -> bool;

    pub(crate) fn envoy_dynamic_module_callback_http_get_header(
        filter: FilterPtr,
        headers: u32,
        key: ModuleBuffer,
        result: *mut EnvoyBuffer,
        index: usize,
        size: *mut usize,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_set_header(
        filter: FilterPtr,
        headers: u32,
        key: ModuleBuffer,
        value: ModuleBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        filter: FilterPtr,
        attribute: u32,
        result: *mut EnvoyBuffer,
    ) -> bool;

    pub(crate) fn envoy_dynamic_module_callback_http_get_cluster_name(
        filter: FilterPtr,
        result: *mut EnvoyBuffer,
    ) -> bool;
    pub(crate) fn envoy_dynamic_module_callback_http_set_upstream_override_host(
        filter: FilterPtr,
        host: ModuleBuffer,
        strict: bool,
    ) -> bool;

    /// Of the C library: looks up symbols that only newer releases of Envoy export.
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}
