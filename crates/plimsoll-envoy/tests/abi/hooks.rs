//! The hooks of the module, called as Envoy calls them.
#![expect(unsafe_code, reason = "takes the part of Envoy")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::envoy::{Buffer, Host, Lb, Request};

unsafe extern "C" {
    safe fn envoy_dynamic_module_on_program_init() -> *const c_char;
    fn envoy_dynamic_module_on_lb_config_new(
        config: *mut c_void,
        name: Buffer,
        text: Buffer,
    ) -> *const c_void;
    fn envoy_dynamic_module_on_lb_config_destroy(config: *const c_void);
    fn envoy_dynamic_module_on_lb_new(config: *const c_void, lb: *mut c_void) -> *mut c_void;
    fn envoy_dynamic_module_on_lb_destroy(balancer: *mut c_void);
    fn envoy_dynamic_module_on_lb_choose_host(
        lb: *mut c_void,
        balancer: *mut c_void,
        context: *mut c_void,
        priority: *mut u32,
        index: *mut u32,
    ) -> bool;
    fn envoy_dynamic_module_on_lb_on_host_membership_update(
        lb: *mut c_void,
        balancer: *mut c_void,
        added: usize,
        removed: usize,
    );
    fn envoy_dynamic_module_on_http_filter_config_new(
        config: *mut c_void,
        name: Buffer,
        text: Buffer,
    ) -> *const c_void;
    fn envoy_dynamic_module_on_http_filter_new(
        config: *const c_void,
        filter: *mut c_void,
    ) -> *mut c_void;
    fn envoy_dynamic_module_on_http_filter_destroy(state: *mut c_void);
    fn envoy_dynamic_module_on_http_filter_request_headers(
        filter: *mut c_void,
        state: *mut c_void,
        end: bool,
    ) -> u32;
    fn envoy_dynamic_module_on_http_filter_response_headers(
        filter: *mut c_void,
        state: *mut c_void,
        end: bool,
    ) -> u32;
    fn envoy_dynamic_module_on_http_filter_response_trailers(
        filter: *mut c_void,
        state: *mut c_void,
    ) -> u32;
}

/// Returns the ABI version that the module tells when it is loaded.
pub(crate) fn load() -> &'static CStr {
    let version = envoy_dynamic_module_on_program_init();
    assert!(!version.is_null());
    // SAFETY: the hook returns a static C string.
    unsafe { CStr::from_ptr(version) }
}

pub(crate) fn read_config(name: &str, text: &str) -> *const c_void {
    // SAFETY: the buffers live during the hook.
    unsafe {
        envoy_dynamic_module_on_lb_config_new(ptr::null_mut(), Buffer::new(name), Buffer::new(text))
    }
}

/// A cluster in Envoy, with the load balancer of the main thread.
pub(crate) struct Cluster {
    config: *const c_void,
    balancer: *mut c_void,
    pub(crate) lb: Lb,
}

impl Cluster {
    pub(crate) fn new(name: &'static str, text: &str, hosts: Vec<Host>) -> Self {
        load();
        let lb = Lb {
            name,
            hosts,
            weights: Vec::new(),
        };
        let config = read_config("plimsoll", text);
        assert!(!config.is_null());
        // SAFETY: the configuration is from the hook before, and `lb` lives during this one.
        let balancer = unsafe { envoy_dynamic_module_on_lb_new(config, lb.ptr()) };
        assert!(!balancer.is_null());
        let cluster = Self {
            config,
            balancer,
            lb,
        };
        cluster.update();
        cluster
    }

    pub(crate) fn update(&self) {
        let lb = self.lb.ptr();
        // SAFETY: both objects live during the hook.
        unsafe { envoy_dynamic_module_on_lb_on_host_membership_update(lb, self.balancer, 1, 0) };
    }

    /// Returns the address of the chosen host, if there is one.
    pub(crate) fn choose(&self, request: *mut c_void) -> Option<&'static str> {
        let (mut priority, mut index) = (9, 9);
        // SAFETY: all objects live during the hook, and the results are writable.
        let chosen = unsafe {
            envoy_dynamic_module_on_lb_choose_host(
                self.lb.ptr(),
                self.balancer,
                request,
                &raw mut priority,
                &raw mut index,
            )
        };
        if !chosen {
            assert_eq!((priority, index), (9, 9));
            return None;
        }
        assert_eq!(priority, 0);
        let host = self.lb.healthy().nth(usize::try_from(index).unwrap());
        Some(host.unwrap().address)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the balancer is from `on_lb_new` and not used any more.
        unsafe { envoy_dynamic_module_on_lb_destroy(self.balancer) };
        // SAFETY: the configuration is from `on_lb_config_new`, and has no load balancer left.
        unsafe { envoy_dynamic_module_on_lb_config_destroy(self.config) };
    }
}

/// A stream of a filter.
pub(crate) struct Filter(*mut c_void);

impl Filter {
    pub(crate) fn new(name: &str) -> Self {
        // SAFETY: the name lives during the hook.
        let config = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                ptr::null_mut(),
                Buffer::new(name),
                Buffer::new(""),
            )
        };
        assert!(!config.is_null());
        // SAFETY: the configuration is from the hook before.
        Self(unsafe { envoy_dynamic_module_on_http_filter_new(config, ptr::null_mut()) })
    }

    pub(crate) fn request(&self, request: &Request) {
        let ptr = request.ptr();
        // SAFETY: both objects live during the hook.
        let status =
            unsafe { envoy_dynamic_module_on_http_filter_request_headers(ptr, self.0, true) };
        assert_eq!(status, 0, "continue");
    }

    pub(crate) fn response(&self, request: &Request) {
        let ptr = request.ptr();
        // SAFETY: both objects live during the hook.
        let status =
            unsafe { envoy_dynamic_module_on_http_filter_response_headers(ptr, self.0, false) };
        assert_eq!(status, 0, "continue");
        // SAFETY: as above.
        let status = unsafe { envoy_dynamic_module_on_http_filter_response_trailers(ptr, self.0) };
        assert_eq!(status, 0, "continue");
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: the state is from `on_http_filter_new` and not used any more.
        unsafe { envoy_dynamic_module_on_http_filter_destroy(self.0) };
    }
}
