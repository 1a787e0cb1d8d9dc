//! Functions that Envoy calls, each guarded against unwinding.
//!
//! Envoy calls `config_new` on the main thread for every cluster that uses the module, then `new`
//! once per worker and once on the main thread. The pointers that these functions return are boxes;
//! Envoy passes them back until it calls the matching `destroy` function, and calls the hooks of
//! one load balancer from one thread only.
#![expect(unsafe_code, reason = "exported to Envoy")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::abi::{ConfigPtr, ContextPtr, EnvoyBuffer, LbPtr};
use crate::envoy::{self, Context, Lb};
use crate::guard::guarded;
use crate::load_balancer::{LoadBalancer, PolicyConfig};
use crate::log::{self, Level};

/// A callback that Envoy has had since 1.40, whose ABI is `v0.2.0`.
const SINCE_1_40: &std::ffi::CStr = c"envoy_dynamic_module_callback_get_runtime_int";

/// Called once when the library is loaded. Returns the ABI version, which Envoy compares with its
/// own and logs; the functions used are the same in both versions.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    guarded("on_program_init", c"v0.2.0".as_ptr(), || {
        log::install(envoy::log);
        if envoy::exports(SINCE_1_40) {
            c"v0.2.0".as_ptr()
        } else {
            c"v0.1.0".as_ptr()
        }
    })
}

/// Reads the configuration of a cluster. A null pointer rejects it; the reason is in Envoy's log.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_lb_config_new(
    envoy_config: ConfigPtr,
    name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> *const c_void {
    guarded("on_lb_config_new", std::ptr::null(), || {
        // SAFETY: Envoy keeps the name alive during the hook.
        let name = unsafe { envoy::borrow(name) };
        // SAFETY: Envoy keeps the text alive during the hook.
        let text = unsafe { envoy::borrow(config) };
        let validate_only = envoy::is_validation_mode();
        match PolicyConfig::parse(name, text, validate_only) {
            Ok(mut config) => {
                // SAFETY: `envoy_config` is the configuration of this hook.
                config.set_metrics(unsafe { envoy::define_metrics(envoy_config) });
                Arc::into_raw(Arc::new(config)).cast()
            }
            Err(error) => {
                log::write(Level::Error, &format!("plimsoll: {error}"));
                std::ptr::null()
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_lb_config_destroy(config: *const c_void) {
    guarded("on_lb_config_destroy", (), || {
        // SAFETY: `config` is from `on_lb_config_new`, and Envoy does not use it any more.
        drop(unsafe { Arc::from_raw(config.cast::<PolicyConfig>()) });
    });
}

/// Creates the load balancer of one thread. It has no hosts yet.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_lb_new(config: *const c_void, lb: LbPtr) -> *mut c_void {
    guarded("on_lb_new", std::ptr::null_mut(), || {
        // SAFETY: `config` is from `on_lb_config_new` and outlives its load balancers.
        let config = unsafe { &*config.cast::<PolicyConfig>() };
        // SAFETY: `lb` belongs to the running hook.
        let lb = unsafe { Lb::new(lb) };
        match LoadBalancer::new(config, &lb.cluster_name()) {
            Ok(balancer) => Box::into_raw(Box::new(balancer)).cast(),
            Err(error) => {
                log::write(Level::Error, &format!("plimsoll: {error}"));
                std::ptr::null_mut()
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_lb_destroy(balancer: *mut c_void) {
    guarded("on_lb_destroy", (), || {
        // SAFETY: `balancer` is from `on_lb_new`, and Envoy does not use it any more.
        drop(unsafe { Box::from_raw(balancer.cast::<LoadBalancer>()) });
    });
}

/// Chooses a host: writes its priority and its index in the list of healthy hosts.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_lb_choose_host(
    lb: LbPtr,
    balancer: *mut c_void,
    context: ContextPtr,
    result_priority: *mut u32,
    result_index: *mut u32,
) -> bool {
    guarded("on_lb_choose_host", false, || {
        // SAFETY: `balancer` is from `on_lb_new`; its hooks run on one thread, one at a time.
        let balancer = unsafe { &mut *balancer.cast::<LoadBalancer>() };
        // SAFETY: `lb` belongs to the running hook.
        let lb = unsafe { Lb::new(lb) };
        // SAFETY: `context` belongs to the running hook or is null.
        let context = unsafe { Context::new(&lb, context) };
        let Some(chosen) = balancer.choose_host(&lb, &context) else {
            return false;
        };
        // SAFETY: Envoy passes writable results.
        unsafe { result_priority.write(chosen.priority) };
        // SAFETY: as above.
        unsafe { result_index.write(chosen.healthy_index) };
        true
    })
}

/// Called after hosts, their health, weights or metadata changed.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_lb_on_host_membership_update(
    lb: LbPtr,
    balancer: *mut c_void,
    _added: usize,
    _removed: usize,
) {
    guarded("on_lb_on_host_membership_update", (), || {
        // SAFETY: `balancer` is from `on_lb_new`; its hooks run on one thread, one at a time.
        let balancer = unsafe { &mut *balancer.cast::<LoadBalancer>() };
        // SAFETY: `lb` belongs to the running hook.
        let lb = unsafe { Lb::new(lb) };
        balancer.handle_membership(&lb);
    });
}
