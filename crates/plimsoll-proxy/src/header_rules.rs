//! [`HeaderRules`]: headers that routes add, replace and remove.

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as model, AppendAction};

use crate::substitution::{self, FormatError, HeaderFormat, Piece, RequestInfo};

/// Header mutations in the order in which they are applied. As in Envoy, each message (such as a
/// route) removes headers before it adds any, so that a header can be replaced, and headers that an
/// earlier message added can be removed.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Remove(HeaderName),
    Add(HeaderRule),
}

/// A header to add or replace.
#[derive(Clone, Debug)]
pub(crate) struct HeaderRule {
    name: HeaderName,
    value: Value,
    action: AppendAction,
    /// Add the header even if its rendered value is empty.
    keep_empty: bool,
}

#[derive(Clone, Debug)]
enum Value {
    Literal(HeaderValue),
    Format(HeaderFormat),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RequestResponseRules {
    pub(crate) request: HeaderRules,
    pub(crate) response: HeaderRules,
}

impl RequestResponseRules {
    pub(crate) fn followed_by(self, outer: &Self) -> Self {
        Self {
            request: self.request.followed_by(&outer.request),
            response: self.response.followed_by(&outer.response),
        }
    }
}

impl TryFrom<&model::HeaderRules> for RequestResponseRules {
    type Error = FieldError;

    fn try_from(rules: &model::HeaderRules) -> Result<Self, FieldError> {
        Ok(Self {
            request: validate("request", &rules.request_add, &rules.request_remove)?,
            response: validate("response", &rules.response_add, &rules.response_remove)?,
        })
    }
}

/// Validates the rules for requests or responses. Paths are relative to the message of the rules.
fn validate(
    direction: &str,
    add: &[model::HeaderValueOption],
    remove: &[String],
) -> Result<HeaderRules, FieldError> {
    let mut steps = Vec::with_capacity(add.len() + remove.len());
    for (index, name) in remove.iter().enumerate() {
        let prefix = format!("{direction}_headers_to_remove[{index}]");
        let name = header_name(name).map_err(|error| error.under(&prefix))?;
        steps.push(Step::Remove(name));
    }
    for (index, option) in add.iter().enumerate() {
        let prefix = format!("{direction}_headers_to_add[{index}].header");
        let rule = HeaderRule::try_from(option).map_err(|error| error.under(&prefix))?;
        steps.push(Step::Add(rule));
    }
    Ok(HeaderRules { steps })
}

impl TryFrom<&model::HeaderValueOption> for HeaderRule {
    type Error = FieldError;

    fn try_from(option: &model::HeaderValueOption) -> Result<Self, FieldError> {
        let name = header_name(&option.key).map_err(|error| error.under("key"))?;
        let invalid = |error: FormatError| FieldError::new("value", error.to_string());
        let pieces = substitution::parse(&option.value).map_err(invalid)?;
        let value = match pieces.as_slice() {
            [] => Value::Literal(HeaderValue::from_static("")),
            [Piece::Literal(text)] => Value::Literal(
                HeaderValue::from_str(text)
                    .map_err(|_| FieldError::new("value", "is not a valid header value"))?,
            ),
            _ => Value::Format(HeaderFormat::new(pieces).map_err(invalid)?),
        };
        Ok(Self {
            name,
            value,
            action: option.append_action,
            keep_empty: option.keep_empty_value,
        })
    }
}

/// Parses the name of a header that rules may modify: any header but `host`.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, FieldError> {
    let reason = || FieldError::new("", format!("{name:?} is not a valid header name"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| reason())?;
    if name == http::header::HOST {
        let reason = "cannot modify host here; use host_rewrite_literal";
        return Err(FieldError::new("", reason));
    }
    Ok(name)
}

impl HeaderRules {
    /// Appends the rules of another message, which are applied after these.
    #[must_use]
    pub fn followed_by(mut self, outer: &Self) -> Self {
        self.steps.extend_from_slice(&outer.steps);
        self
    }

    /// Whether a header value contains operators, so that [`RequestInfo`] must be collected.
    pub(crate) fn needs_request_info(&self) -> bool {
        let has_operators = |step: &Step| match step {
            Step::Add(rule) => matches!(rule.value, Value::Format(_)),
            Step::Remove(_) => false,
        };
        self.steps.iter().any(has_operators)
    }

    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap, info: Option<&RequestInfo>) {
        self.apply(headers, |format, _| Some(format.value(info?, None)));
    }

    pub(crate) fn apply_to_response(&self, headers: &mut HeaderMap, info: Option<&RequestInfo>) {
        self.apply(headers, |format, own| Some(format.value(info?, Some(own))));
    }

    /// Applies the rules; `format_value` renders a value, given the headers modified so far.
    fn apply(
        &self,
        headers: &mut HeaderMap,
        format_value: impl Fn(&HeaderFormat, &HeaderMap) -> Option<Vec<u8>>,
    ) {
        for step in &self.steps {
            let rule = match step {
                Step::Add(rule) => rule,
                Step::Remove(name) => {
                    headers.remove(name);
                    continue;
                }
            };
            let value = match &rule.value {
                Value::Literal(value) => Some(value.clone()),
                Value::Format(format) => format_value(format, headers)
                    .and_then(|value| HeaderValue::try_from(value).ok()),
            };
            let Some(value) = value.filter(|value| rule.keep_empty || !value.is_empty()) else {
                continue;
            };
            let exists = || headers.contains_key(&rule.name);
            match rule.action {
                AppendAction::AppendIfExistsOrAdd => {
                    headers.append(rule.name.clone(), value);
                }
                AppendAction::AddIfAbsent if exists() => {}
                AppendAction::OverwriteIfExists if !exists() => {}
                _ => {
                    headers.insert(rule.name.clone(), value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: &str, append_action: AppendAction) -> model::HeaderValueOption {
        model::HeaderValueOption {
            key: "x".into(),
            value: value.into(),
            append_action,
            keep_empty_value: false,
        }
    }

    fn rules(add: Vec<model::HeaderValueOption>, remove: &[&str]) -> RequestResponseRules {
        let rules = model::HeaderRules {
            response_add: add,
            response_remove: remove.iter().map(|&name| name.to_owned()).collect(),
            ..model::HeaderRules::default()
        };
        RequestResponseRules::try_from(&rules).unwrap()
    }

    fn applied(option: model::HeaderValueOption, before: &[&'static str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for value in before {
            headers.append("x", HeaderValue::from_static(value));
        }
        let rules = rules(vec![option], &[]).response;
        assert!(!rules.needs_request_info());
        rules.apply_to_response(&mut headers, None);
        let values = headers.get_all("x").iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn append_actions_match_their_names() {
        use AppendAction::{AddIfAbsent, AppendIfExistsOrAdd};
        use AppendAction::{OverwriteIfExists, OverwriteIfExistsOrAdd};
        let applied = |action, before| applied(rule("new", action), before);
        assert_eq!(applied(AppendIfExistsOrAdd, &["a"]), ["a", "new"]);
        assert_eq!(applied(AppendIfExistsOrAdd, &[]), ["new"]);
        assert_eq!(applied(AddIfAbsent, &["a"]), ["a"]);
        assert_eq!(applied(AddIfAbsent, &[]), ["new"]);
        assert_eq!(applied(OverwriteIfExistsOrAdd, &["a", "b"]), ["new"]);
        assert_eq!(applied(OverwriteIfExistsOrAdd, &[]), ["new"]);
        assert_eq!(applied(OverwriteIfExists, &["a"]), ["new"]);
        assert_eq!(applied(OverwriteIfExists, &[]), [""; 0]);
    }

    #[test]
    fn empty_values_are_omitted_unless_kept_explicitly() {
        let empty = rule("", AppendAction::AppendIfExistsOrAdd);
        assert_eq!(applied(empty.clone(), &[]), [""; 0]);
        let kept = model::HeaderValueOption {
            keep_empty_value: true,
            ..empty
        };
        assert_eq!(applied(kept, &[]), [""]);
        let percent = rule("50%%", AppendAction::AppendIfExistsOrAdd);
        assert_eq!(applied(percent, &[]), ["50%"]);
    }

    #[test]
    fn formats_need_request_info_and_unsupported_operators_are_errors() {
        let format = rule("%UPSTREAM_HOST%", AppendAction::AppendIfExistsOrAdd);
        assert!(rules(vec![format], &[]).response.needs_request_info());
        for value in ["%NO%", "%BYTES_SENT%", "a\nb", "%"] {
            let wrong = model::HeaderRules {
                request_add: vec![rule(value, AppendAction::AddIfAbsent)],
                ..model::HeaderRules::default()
            };
            let error = RequestResponseRules::try_from(&wrong).unwrap_err();
            assert_eq!(error.path(), "request_headers_to_add[0].header.value");
        }
    }

    #[test]
    fn each_message_removes_headers_before_adding_and_outer_rules_come_last() {
        let append = |value| rule(value, AppendAction::AppendIfExistsOrAdd);
        let overwrite = |value| rule(value, AppendAction::OverwriteIfExistsOrAdd);
        let after = |rules: RequestResponseRules| {
            let mut headers = HeaderMap::new();
            headers.insert("x", HeaderValue::from_static("old"));
            rules.response.apply_to_response(&mut headers, None);
            let values = headers.get_all("x").iter();
            values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(after(rules(vec![append("new")], &["x"])), ["new"]);
        let [inner, outer] = ["inner", "outer"].map(|value| rules(vec![overwrite(value)], &[]));
        assert_eq!(after(inner.followed_by(&outer)), ["outer"]);
        let inner = rules(vec![append("inner")], &[]);
        let outer = rules(Vec::new(), &["x"]);
        assert_eq!(after(inner.clone().followed_by(&outer)), [""; 0]);
        assert_eq!(after(outer.followed_by(&inner)), ["inner"]);
    }
}
