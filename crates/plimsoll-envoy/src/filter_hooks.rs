//! HTTP filter that reads load reports from responses. Envoy calls these functions if the filter
//! is among the upstream filters of a cluster (`HttpProtocolOptions.http_filters`).
//!
//! The state of a stream is one bit, whether its report was found, in a box. Envoy requires a
//! function for every event; most do nothing.
#![expect(unsafe_code, reason = "exported to Envoy")]

use std::ffi::c_void;

use plimsoll_xds::orca::FirstReport;

use crate::abi::{EnvoyBuffer, FilterPtr};
use crate::envoy::{self, Stream};
use crate::guard::guarded;
use crate::log::{self, Level};
use crate::orca::Headers;
use crate::process::Process;

/// `filter_name` of the filter.
const FILTER: &[u8] = b"plimsoll.orca";
/// `Continue` in every status that a filter returns.
const CONTINUE: u32 = 0;
/// The filter has no configuration, so all its configurations are this value.
static CONFIG: u8 = 0;

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    _config: *mut c_void,
    name: EnvoyBuffer,
    _text: EnvoyBuffer,
) -> *const c_void {
    guarded("on_http_filter_config_new", std::ptr::null(), || {
        // SAFETY: Envoy keeps the name alive during the hook.
        let name = unsafe { envoy::borrow(name) };
        if name == FILTER {
            return (&raw const CONFIG).cast();
        }
        let name = String::from_utf8_lossy(name);
        let line = format!("plimsoll: filter_name: unknown filter {name:?}");
        log::write(Level::Error, &line);
        std::ptr::null()
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(_config: *const c_void) {}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(
    _config: *const c_void,
    _filter: FilterPtr,
) -> *mut c_void {
    guarded("on_http_filter_new", std::ptr::null_mut(), || {
        Box::into_raw(Box::<FirstReport>::default()).cast()
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(state: *mut c_void) {
    guarded("on_http_filter_destroy", (), || {
        // SAFETY: `state` is from `on_http_filter_new`, and Envoy does not use it any more.
        drop(unsafe { Box::from_raw(state.cast::<FirstReport>()) });
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    filter: FilterPtr,
    state: *mut c_void,
    _end_of_stream: bool,
) -> u32 {
    guarded("on_http_filter_response_headers", CONTINUE, || {
        // SAFETY: `filter` belongs to the running hook.
        let stream = unsafe { Stream::new(filter) };
        observe(&stream, &stream.headers(), state);
        CONTINUE
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    filter: FilterPtr,
    state: *mut c_void,
) -> u32 {
    guarded("on_http_filter_response_trailers", CONTINUE, || {
        // SAFETY: `filter` belongs to the running hook.
        let stream = unsafe { Stream::new(filter) };
        observe(&stream, &stream.trailers(), state);
        CONTINUE
    })
}

fn observe(stream: &Stream<'_>, headers: &impl Headers, state: *mut c_void) {
    // SAFETY: `state` is from `on_http_filter_new`; hooks of one stream run one at a time.
    let first = unsafe { &mut *state.cast::<FirstReport>() };
    let process = Process::global();
    let address = || stream.upstream_address();
    let orca = process.orca();
    orca.observe(address, headers, first, || process.now());
}

macro_rules! ignored {
    ($($hook:ident -> $status:ty = $value:expr),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $hook(_filter: FilterPtr, _state: *mut c_void) -> $status {
            $value
        }
    )*};
}

// Events without work. Arguments after the first two are left in their registers.
ignored! {
    envoy_dynamic_module_on_http_filter_request_headers -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_request_body -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_request_trailers -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_response_body -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_stream_complete -> () = (),
    envoy_dynamic_module_on_http_filter_http_callout_done -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_headers -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_data -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_trailers -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_complete -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_reset -> () = (),
    envoy_dynamic_module_on_http_filter_scheduled -> () = (),
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark -> () = (),
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark -> () = (),
}
