//! Filter chains of a listener: `filter_chains`, `default_filter_chain` and `listener_filters`.

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::listener::{
    FilterChainMatchMessage, FilterChainMessage, ListenerFilterMessage, TlsInspectorMessage,
};
use plimsoll_xds::pb::under;

use super::extension::typed_config;
use super::{FilterChainConfig, listener, tls};
use crate::filter_chain::{FilterChainMatch, FilterChainSelector, TransportProtocol};

/// Checks the listener filters; error paths are relative to the listener.
pub(super) fn check_listener_filters(
    filters: Vec<ListenerFilterMessage>,
) -> Result<(), FieldError> {
    for (index, filter) in filters.into_iter().enumerate() {
        typed_config::<TlsInspectorMessage>(filter.typed_config)
            .map_err(|error| error.under(&format!("listener_filters[{index}]")))?;
    }
    Ok(())
}

/// Converts the filter chains; the default one is the last. Error paths are relative to the
/// listener.
pub(super) fn filter_chains(
    chains: Vec<FilterChainMessage>,
    default: Option<FilterChainMessage>,
) -> Result<(Vec<FilterChainConfig>, FilterChainSelector), FieldError> {
    if chains.is_empty() && default.is_none() {
        return Err(FieldError::new("filter_chains", "must not be empty"));
    }
    let mut matches = Vec::new();
    let mut configs = Vec::new();
    for (index, chain) in chains.into_iter().enumerate() {
        let (criteria, config) =
            filter_chain(chain).map_err(|error| error.under(&format!("filter_chains[{index}]")))?;
        matches.push(criteria);
        configs.push(config);
    }
    let last = default.is_some().then_some(configs.len());
    if let Some((criteria, config)) = under(default.map(filter_chain), "default_filter_chain")? {
        if criteria != FilterChainMatch::default() {
            let path = "default_filter_chain.filter_chain_match";
            let reason = "must be empty: it would have no effect";
            return Err(FieldError::new(path, reason));
        }
        configs.push(config);
    }
    Ok((configs, FilterChainSelector::try_new(&matches, last)?))
}

fn filter_chain(
    message: FilterChainMessage,
) -> Result<(FilterChainMatch, FilterChainConfig), FieldError> {
    let criteria = filter_chain_match(message.filter_chain_match.unwrap_or_default())
        .map_err(|error| error.under("filter_chain_match"))?;
    let count = message.filters.len();
    let mut filters = message.filters.into_iter();
    let (Some(filter), 1) = (filters.next(), count) else {
        let reason = format!("must have exactly one entry, not {count}");
        return Err(FieldError::new("filters", reason));
    };
    let manager = typed_config(filter.typed_config).and_then(|manager| {
        listener::connection_manager(manager).map_err(|error| error.under("typed_config"))
    });
    let mut config = manager.map_err(|error| error.under("filters[0]"))?;
    config.tls = under(message.transport_socket.map(tls::tls), "transport_socket")?;
    Ok((criteria, config))
}

fn filter_chain_match(message: FilterChainMatchMessage) -> Result<FilterChainMatch, FieldError> {
    let transport_protocol = match message.transport_protocol.as_str() {
        "" => None,
        "tls" => Some(TransportProtocol::Tls),
        "raw_buffer" => Some(TransportProtocol::RawBuffer),
        other => {
            let reason = format!("{other:?} is not supported; supported: tls, raw_buffer");
            return Err(FieldError::new("transport_protocol", reason));
        }
    };
    Ok(FilterChainMatch {
        server_names: message.server_names,
        transport_protocol,
        application_protocols: message.application_protocols,
    })
}
