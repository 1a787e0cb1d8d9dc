//! HTTP filters of this library: `plimsoll.orca` among the upstream filters of a cluster
//! (`HttpProtocolOptions.http_filters`) sees the response of every attempt, and `plimsoll.override`
//! in a listener asks for hosts that the policy may not return.
//!
//! Envoy requires a function for every event; most do nothing.
#![expect(unsafe_code, reason = "exported to Envoy")]

use std::ffi::c_void;

use crate::abi::{EnvoyBuffer, FilterPtr};
use crate::attempt::Attempt;
use crate::envoy::{self, Stream};
use crate::guard::guarded;
use crate::log::{self, Level};
use crate::orca::Headers as _;
use crate::process::Process;
use crate::report_format;

/// `filter_name` of the filters, by [`Filter`].
const NAMES: [(&[u8], Filter); 2] = [
    (b"plimsoll.orca", Filter::Orca),
    (b"plimsoll.override", Filter::Override),
];
/// `Continue` in every status that a filter returns.
const CONTINUE: u32 = 0;
/// The filters have no settings, so all configurations of one filter are the same value.
static FILTERS: [Filter; 2] = [Filter::Orca, Filter::Override];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Filter {
    /// Reads load reports and times responses.
    Orca = 0,
    /// Asks for degraded hosts, and in panic mode for any host.
    Override = 1,
}

/// State of one stream of a filter.
enum State {
    Orca(Attempt),
    Override,
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    _config: *mut c_void,
    name: EnvoyBuffer,
    _text: EnvoyBuffer,
) -> *const c_void {
    guarded("on_http_filter_config_new", std::ptr::null(), || {
        // SAFETY: Envoy keeps the name alive during the hook.
        let name = unsafe { envoy::borrow(name) };
        if let Some((_, filter)) = NAMES.iter().find(|(known, _)| *known == name) {
            return (&raw const FILTERS[*filter as usize]).cast();
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
    config: *const c_void,
    _filter: FilterPtr,
) -> *mut c_void {
    guarded("on_http_filter_new", std::ptr::null_mut(), || {
        // SAFETY: `config` is an element of the static list.
        let filter = unsafe { *config.cast::<Filter>() };
        let state = match filter {
            Filter::Orca => State::Orca(Attempt::start(|| Process::global().now())),
            Filter::Override => State::Override,
        };
        Box::into_raw(Box::new(state)).cast()
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(state: *mut c_void) {
    guarded("on_http_filter_destroy", (), || {
        // SAFETY: `state` is from `on_http_filter_new`, and Envoy does not use it any more.
        let state = unsafe { Box::from_raw(state.cast::<State>()) };
        if let State::Orca(attempt) = *state {
            attempt.finish();
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    filter: FilterPtr,
    state: *mut c_void,
    _end_of_stream: bool,
) -> u32 {
    guarded("on_http_filter_request_headers", CONTINUE, || {
        // SAFETY: `state` is from `on_http_filter_new`; hooks of one stream run one at a time.
        let state = unsafe { &*state.cast::<State>() };
        // SAFETY: `filter` belongs to the running hook.
        let stream = unsafe { Stream::new(filter) };
        let process = Process::global();
        match state {
            State::Override => {
                if let Some(host) = process.overrides().choose(|| stream.cluster_name()) {
                    stream.override_host(&host.to_string());
                }
            }
            State::Orca(_) => {
                let format = process.report_formats().of(|| stream.cluster_name());
                if let Some(format) = format
                    && stream
                        .request_headers()
                        .get(report_format::HEADER)
                        .is_none()
                {
                    stream.set_request_header(report_format::HEADER, format);
                }
            }
        }
        CONTINUE
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    filter: FilterPtr,
    state: *mut c_void,
    _end_of_stream: bool,
) -> u32 {
    guarded("on_http_filter_response_headers", CONTINUE, || {
        // SAFETY: `state` is from `on_http_filter_new`; hooks of one stream run one at a time.
        if let State::Orca(attempt) = unsafe { &mut *state.cast::<State>() } {
            // SAFETY: `filter` belongs to the running hook.
            let stream = unsafe { Stream::new(filter) };
            let process = Process::global();
            let address = || stream.upstream_address();
            let now = || process.now();
            attempt.response_started(process.orca(), address, &stream.headers(), now);
        }
        CONTINUE
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    filter: FilterPtr,
    state: *mut c_void,
) -> u32 {
    guarded("on_http_filter_response_trailers", CONTINUE, || {
        // SAFETY: `state` is from `on_http_filter_new`; hooks of one stream run one at a time.
        if let State::Orca(attempt) = unsafe { &mut *state.cast::<State>() } {
            // SAFETY: `filter` belongs to the running hook.
            let stream = unsafe { Stream::new(filter) };
            let process = Process::global();
            let address = || stream.upstream_address();
            let now = || process.now();
            attempt.find_report(process.orca(), address, &stream.trailers(), now);
        }
        CONTINUE
    })
}

macro_rules! ignored {
    ($($hook:ident($($parameter:ty),*) -> $status:ty = $value:expr),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $hook(_: FilterPtr, _: *mut c_void $(, _: $parameter)*) -> $status {
            $value
        }
    )*};
}

// Events without work, with the parameters of the ABI: handles of 64 bits, arrays with their
// lengths, enums of 32 bits.
ignored! {
    envoy_dynamic_module_on_http_filter_request_body(bool) -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_request_trailers() -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_response_body(bool) -> u32 = CONTINUE,
    envoy_dynamic_module_on_http_filter_stream_complete() -> () = (),
    envoy_dynamic_module_on_http_filter_http_callout_done(
        u64, u32, *mut c_void, usize, *mut c_void, usize
    ) -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_headers(
        u64, *mut c_void, usize, bool
    ) -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_data(
        u64, *const c_void, usize, bool
    ) -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_trailers(u64, *mut c_void, usize) -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_complete(u64) -> () = (),
    envoy_dynamic_module_on_http_filter_http_stream_reset(u64, u32) -> () = (),
    envoy_dynamic_module_on_http_filter_scheduled(u64) -> () = (),
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark() -> () = (),
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark() -> () = (),
}
