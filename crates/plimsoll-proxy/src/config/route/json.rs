//! Routes as JSON in the shape of Envoy's `RouteConfiguration`: the way back from the nouns, for
//! `/config_dump`.
//!
//! Routes of a management server arrive as bytes and are kept as nouns; since whatever is not a
//! noun was refused, nothing is lost. What is a default is left out. Reading what is written here
//! gives the same nouns, which the test below holds it to.

use std::time::Duration;

use plimsoll_xds::route::{
    Action, AppendAction, HashPolicy, HashSource, HeaderMatcher, HeaderPattern, HeaderRules,
    PathMatcher, Redirect, RetryHostPredicate, RetryPolicy, Route, RouteAction, RouteConfiguration,
    RouteMatch, Target, VirtualHost,
};
use plimsoll_xds::string_match::{StringMatcher, StringPattern};
use plimsoll_xds::upstream::DataSource;
use serde_json::{Map, Value, json};

use crate::metadata_json::metadata;

/// The whole configuration.
pub(crate) fn route_configuration(routes: &RouteConfiguration) -> Value {
    let hosts: Vec<Value> = routes.virtual_hosts().iter().map(virtual_host).collect();
    let mut fields = vec![
        ("name", json!(routes.name)),
        ("virtual_hosts", json!(hosts)),
        (
            "ignore_port_in_host_matching",
            json!(routes.ignore_port_in_host_matching),
        ),
        (
            "most_specific_header_mutations_wins",
            json!(routes.most_specific_header_mutations_wins),
        ),
    ];
    fields.extend(header_rules(&routes.headers));
    object(fields)
}

fn virtual_host(host: &VirtualHost) -> Value {
    let retry = host.retry_policy.as_ref();
    let routes = host.routes.iter().map(|entry| route(entry, retry));
    let mut fields = vec![
        ("name", json!(host.name)),
        ("domains", json!(host.domains)),
        ("routes", Value::Array(routes.collect())),
        ("retry_policy", retry.map_or(Value::Null, retry_policy)),
    ];
    fields.extend(header_rules(&host.headers));
    object(fields)
}

/// `inherited` are the retries of the virtual host, which routes without their own have too.
fn route(route: &Route, inherited: Option<&RetryPolicy>) -> Value {
    let action = match &route.action {
        Action::Forward(action) => ("route", route_action(action, inherited)),
        Action::Redirect(action) => ("redirect", redirect(action)),
        Action::DirectResponse { status, body } => {
            let body = match body {
                Some(DataSource::Inline(body)) if !body.is_empty() => {
                    json!({ "inline_string": String::from_utf8_lossy(body) })
                }
                _ => Value::Null,
            };
            let fields = vec![("status", json!(status)), ("body", body)];
            ("direct_response", object(fields))
        }
        // Refused by proxies.
        Action::NonForwarding => ("non_forwarding_action", json!({})),
        Action::Unsupported(field) => (*field, json!({})),
    };
    let mut fields = vec![
        ("name", json!(route.name)),
        ("match", route_match(&route.route_match)),
        action,
    ];
    fields.extend(header_rules(&route.headers));
    object(fields)
}

fn route_match(matching: &RouteMatch) -> Value {
    let (path, value) = match &matching.path {
        PathMatcher::Prefix(prefix) => ("prefix", json!(prefix)),
        PathMatcher::Path(path) => ("path", json!(path)),
        PathMatcher::PathSeparatedPrefix(prefix) => ("path_separated_prefix", json!(prefix)),
        PathMatcher::Regex(regex) => ("safe_regex", json!({ "regex": regex.as_str() })),
    };
    let headers: Vec<Value> = matching.headers.iter().map(header_matcher).collect();
    let parameters = matching.query_parameters.iter().map(|parameter| {
        let value = parameter.value.as_ref();
        let condition = match value {
            Some(value) => ("string_match", string_matcher(value)),
            None => ("present_match", json!(true)),
        };
        object(vec![("name", json!(parameter.name)), condition])
    });
    let fraction = matching.runtime_fraction.map(|fraction| {
        let denominator = match fraction.denominator {
            10_000 => "TEN_THOUSAND",
            1_000_000 => "MILLION",
            _ => "HUNDRED",
        };
        json!({ "default_value": {
            "numerator": fraction.numerator,
            "denominator": denominator,
        }})
    });
    let grpc = match matching.grpc {
        true => json!({}),
        false => Value::Null,
    };
    let mut made = object(vec![
        ("headers", json!(headers)),
        ("query_parameters", Value::Array(parameters.collect())),
        ("grpc", grpc),
        ("runtime_fraction", fraction.unwrap_or_default()),
    ]);
    // An empty prefix is no default: it means all paths.
    made[path] = value;
    if !matching.case_sensitive {
        made["case_sensitive"] = json!(false);
    }
    made
}

fn header_matcher(header: &HeaderMatcher) -> Value {
    let condition = match &header.pattern {
        HeaderPattern::String(matcher) => ("string_match", string_matcher(matcher)),
        HeaderPattern::Range(start, end) => ("range_match", json!({ "start": start, "end": end })),
        HeaderPattern::Present(present) => ("present_match", json!(present)),
    };
    let mut made = object(vec![
        ("name", json!(header.name)),
        ("invert_match", json!(header.invert)),
        (
            "treat_missing_header_as_empty",
            json!(header.treat_missing_as_empty),
        ),
    ]);
    // That a field must be absent is no default.
    made[condition.0] = condition.1;
    made
}

fn string_matcher(matcher: &StringMatcher) -> Value {
    let (name, value) = match &matcher.pattern {
        StringPattern::Exact(text) => ("exact", json!(text)),
        StringPattern::Prefix(text) => ("prefix", json!(text)),
        StringPattern::Suffix(text) => ("suffix", json!(text)),
        StringPattern::Contains(text) => ("contains", json!(text)),
        StringPattern::Regex(regex) => ("safe_regex", json!({ "regex": regex.as_str() })),
    };
    let mut made = object(vec![("ignore_case", json!(matcher.ignore_case))]);
    // An exact match of nothing is no default.
    made[name] = value;
    made
}

fn route_action(action: &RouteAction, inherited: Option<&RetryPolicy>) -> Value {
    let target = match &action.target {
        Target::Cluster(name) => ("cluster", json!(name)),
        Target::ClusterHeader(name) => ("cluster_header", json!(name)),
        Target::Weighted(weighted) => {
            let clusters = weighted.clusters().iter().map(|cluster| {
                let mut fields = vec![
                    ("name", json!(cluster.name)),
                    ("weight", json!(cluster.weight)),
                    (
                        "metadata_match",
                        cluster
                            .metadata_match
                            .as_ref()
                            .map_or(Value::Null, metadata),
                    ),
                ];
                fields.extend(header_rules(&cluster.headers));
                object(fields)
            });
            let clusters: Vec<Value> = clusters.collect();
            ("weighted_clusters", json!({ "clusters": clusters }))
        }
    };
    let retry = action.retry_policy.as_ref();
    let retry = retry.filter(|policy| Some(*policy) != inherited);
    let policies = action.hash_policy.iter().filter_map(hash_policy);
    let criteria = action.metadata_match.as_ref();
    let criteria = criteria.map_or(Value::Null, |criteria| metadata(criteria.metadata()));
    object(vec![
        target,
        ("metadata_match", criteria),
        ("timeout", time(action.timeout)),
        ("idle_timeout", time(action.idle_timeout)),
        ("retry_policy", retry.map_or(Value::Null, retry_policy)),
        ("prefix_rewrite", json!(action.prefix_rewrite)),
        ("host_rewrite_literal", json!(action.host_rewrite_literal)),
        (
            "append_x_forwarded_host",
            json!(action.append_x_forwarded_host),
        ),
        ("hash_policy", Value::Array(policies.collect())),
    ])
}

fn hash_policy(policy: &HashPolicy) -> Option<Value> {
    let source = match &policy.source {
        HashSource::Header(name) => ("header", json!({ "header_name": name })),
        HashSource::SourceIp => ("connection_properties", json!({ "source_ip": true })),
        // Refused by proxies.
        HashSource::ChannelId | HashSource::Unsupported => return None,
    };
    Some(object(vec![source, ("terminal", json!(policy.terminal))]))
}

fn retry_policy(policy: &RetryPolicy) -> Value {
    let predicates = policy.retry_host_predicate.iter();
    let predicates = predicates.map(|predicate| match predicate {
        RetryHostPredicate::PreviousHosts => json!({
            "name": RetryHostPredicate::PREVIOUS_HOSTS,
            "typed_config": { "@type": RetryHostPredicate::PREVIOUS_HOSTS_TYPE },
        }),
        // Refused by proxies.
        RetryHostPredicate::Other(name) => json!({ "name": name }),
    });
    let attempts = policy.host_selection_retry_max_attempts;
    let attempts = Some(attempts).filter(|attempts| *attempts > 0);
    let mut made = object(vec![
        ("retry_host_predicate", Value::Array(predicates.collect())),
        ("host_selection_retry_max_attempts", json!(attempts)),
        ("retry_on", json!(policy.retry_on.join(","))),
        ("per_try_timeout", time(policy.per_try_timeout)),
        (
            "retriable_status_codes",
            json!(policy.retriable_status_codes),
        ),
        (
            "retry_back_off",
            json!({
                "base_interval": time(Some(policy.base_interval)),
                "max_interval": time(Some(policy.max_interval)),
            }),
        ),
    ]);
    // None at all is no default.
    made["num_retries"] = json!(policy.num_retries);
    made
}

fn redirect(redirect: &Redirect) -> Value {
    let code = match redirect.response_code {
        302 => "FOUND",
        303 => "SEE_OTHER",
        307 => "TEMPORARY_REDIRECT",
        308 => "PERMANENT_REDIRECT",
        _ => "",
    };
    object(vec![
        ("scheme_redirect", json!(redirect.scheme_redirect)),
        ("host_redirect", json!(redirect.host_redirect)),
        ("port_redirect", json!(redirect.port_redirect)),
        ("path_redirect", json!(redirect.path_redirect)),
        ("prefix_rewrite", json!(redirect.prefix_rewrite)),
        ("strip_query", json!(redirect.strip_query)),
        ("response_code", json!(code)),
    ])
}

fn header_rules(rules: &HeaderRules) -> [(&'static str, Value); 4] {
    let added = |options: &[plimsoll_xds::route::HeaderValueOption]| {
        let options = options.iter().map(|option| {
            let action = match option.append_action {
                AppendAction::AppendIfExistsOrAdd => "",
                AppendAction::AddIfAbsent => "ADD_IF_ABSENT",
                AppendAction::OverwriteIfExistsOrAdd => "OVERWRITE_IF_EXISTS_OR_ADD",
                AppendAction::OverwriteIfExists => "OVERWRITE_IF_EXISTS",
            };
            object(vec![
                (
                    "header",
                    json!({ "key": option.key, "value": option.value }),
                ),
                ("append_action", json!(action)),
                ("keep_empty_value", json!(option.keep_empty_value)),
            ])
        });
        Value::Array(options.collect())
    };
    [
        ("request_headers_to_add", added(&rules.request_add)),
        ("request_headers_to_remove", json!(rules.request_remove)),
        ("response_headers_to_add", added(&rules.response_add)),
        ("response_headers_to_remove", json!(rules.response_remove)),
    ]
}

/// A duration as protobuf's JSON has it: seconds, with as many digits as it needs.
fn time(time: Option<Duration>) -> Value {
    let Some(time) = time else {
        return Value::Null;
    };
    let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
    if nanos == 0 {
        return json!(format!("{seconds}s"));
    }
    let text = format!("{seconds}.{nanos:09}");
    json!(format!("{}s", text.trim_end_matches('0')))
}

/// An object without what is not set.
fn object(fields: Vec<(&str, Value)>) -> Value {
    let says = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let fields = fields.into_iter().filter(|(_, value)| says(value));
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::super::RouteConfigurationYaml;
    use super::*;
    use plimsoll_xds::yaml::Document;

    fn parse(text: &str) -> RouteConfiguration {
        let document = Document::parse(text).unwrap();
        let read: RouteConfigurationYaml = document.read().unwrap();
        read.checked().unwrap()
    }

    #[test]
    fn what_is_written_reads_as_the_same_routes() {
        let text = include_str!("json/everything.yaml");
        let routes = parse(text);
        let written = route_configuration(&routes);
        let again = parse(&written.to_string());
        assert_eq!(again, routes, "{written:#}");
        // Nothing of the file is a default, so that nothing may be missing.
        let count = |value: &Value| value.to_string().matches("\":").count();
        let given: Value = Document::parse(text).unwrap().read().unwrap();
        assert_eq!(count(&written), count(&given), "{written:#}");
    }

    #[test]
    fn defaults_are_left_out() {
        let text = "{name: r, virtual_hosts: [{name: v, domains: ['*'], routes: [\
                    {match: {prefix: ''}, route: {cluster: c, timeout: 0.025s}}]}]}";
        let expected = json!({
            "name": "r",
            "virtual_hosts": [{ "name": "v", "domains": ["*"], "routes": [{
                "match": { "prefix": "" },
                "route": { "cluster": "c", "timeout": "0.025s" },
            }]}],
        });
        assert_eq!(route_configuration(&parse(text)), expected);
    }
}
