//! [`HeaderRules`]: header fields that routes add, replace and remove.

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as nouns, AppendAction};

use crate::substitution::{self, Facts, HeaderFormat, Piece};

/// Changes of header fields, in order. Of one message (a route, say) removing comes before adding,
/// so that a field can be replaced, and what another message adds before is removed: as in Envoy.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Remove(HeaderName),
    Add(HeaderRule),
}

/// One field to add or replace.
#[derive(Clone, Debug)]
pub struct HeaderRule {
    name: HeaderName,
    value: Value,
    /// What happens when it is there, or is not.
    action: AppendAction,
    /// A value that turns out empty is added all the same.
    keep_empty: bool,
}

#[derive(Clone, Debug)]
enum Value {
    Fixed(HeaderValue),
    Made(HeaderFormat),
}

/// Changes of a request and of its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct BothRules {
    pub(crate) request: HeaderRules,
    pub(crate) response: HeaderRules,
}

impl BothRules {
    /// These, followed by `outer`.
    pub(crate) fn followed_by(self, outer: &Self) -> Self {
        Self {
            request: self.request.followed_by(&outer.request),
            response: self.response.followed_by(&outer.response),
        }
    }
}

impl TryFrom<&nouns::HeaderRules> for BothRules {
    type Error = FieldError;

    fn try_from(rules: &nouns::HeaderRules) -> Result<Self, FieldError> {
        Ok(Self {
            request: checked("request", &rules.request_add, &rules.request_remove)?,
            response: checked("response", &rules.response_add, &rules.response_remove)?,
        })
    }
}

/// The rules of one direction; paths start at the message that has both lists.
fn checked(
    direction: &str,
    add: &[nouns::HeaderValueOption],
    remove: &[String],
) -> Result<HeaderRules, FieldError> {
    let mut steps = Vec::with_capacity(add.len() + remove.len());
    for (index, name) in remove.iter().enumerate() {
        let place = format!("{direction}_headers_to_remove[{index}]");
        let name = field_name(name).map_err(|error| error.under(&place))?;
        steps.push(Step::Remove(name));
    }
    for (index, option) in add.iter().enumerate() {
        let place = format!("{direction}_headers_to_add[{index}].header");
        let rule = HeaderRule::try_from(option).map_err(|error| error.under(&place))?;
        steps.push(Step::Add(rule));
    }
    Ok(HeaderRules { steps })
}

impl TryFrom<&nouns::HeaderValueOption> for HeaderRule {
    type Error = FieldError;

    fn try_from(option: &nouns::HeaderValueOption) -> Result<Self, FieldError> {
        let name = field_name(&option.key).map_err(|error| error.under("key"))?;
        let at_value = |reason: String| FieldError::new("value", reason);
        let pieces = substitution::parse(&option.value).map_err(at_value)?;
        let value = match pieces.as_slice() {
            [] => Value::Fixed(HeaderValue::from_static("")),
            [Piece::Literal(text)] => {
                let value = HeaderValue::from_str(text);
                Value::Fixed(value.map_err(|_| at_value("is not a header value".to_owned()))?)
            }
            _ => Value::Made(HeaderFormat::new(pieces).map_err(at_value)?),
        };
        Ok(Self {
            name,
            value,
            action: option.append_action,
            keep_empty: option.keep_empty_value,
        })
    }
}

/// A field that rules may touch: not one of the message's frame.
pub(crate) fn field_name(name: &str) -> Result<HeaderName, FieldError> {
    let reason = || FieldError::new("", format!("{name:?} is not the name of a header field"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| reason())?;
    if name == http::header::HOST {
        let reason = "the host is changed with host_rewrite_literal";
        return Err(FieldError::new("", reason));
    }
    Ok(name)
}

impl HeaderRules {
    /// These, followed by `outer`.
    #[must_use]
    pub fn followed_by(mut self, outer: &Self) -> Self {
        self.steps.extend_from_slice(&outer.steps);
        self
    }

    /// Whether a value is made for each message, so that [`Facts`] are needed.
    pub(crate) fn needs_facts(&self) -> bool {
        let made = |step: &Step| match step {
            Step::Add(rule) => matches!(rule.value, Value::Made(_)),
            Step::Remove(_) => false,
        };
        self.steps.iter().any(made)
    }

    /// Changes the fields of a request.
    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap, facts: Option<&Facts>) {
        self.apply(headers, |format, _| Some(format.value(facts?, None)));
    }

    /// Changes the fields of a response.
    pub(crate) fn apply_to_response(&self, headers: &mut HeaderMap, facts: Option<&Facts>) {
        self.apply(headers, |format, own| Some(format.value(facts?, Some(own))));
    }

    /// `make` makes values out of formats and the fields as they are.
    fn apply(
        &self,
        headers: &mut HeaderMap,
        make: impl Fn(&HeaderFormat, &HeaderMap) -> Option<Vec<u8>>,
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
                Value::Fixed(value) => Some(value.clone()),
                Value::Made(format) => {
                    make(format, headers).and_then(|value| HeaderValue::try_from(value).ok())
                }
            };
            let Some(value) = value.filter(|value| rule.keep_empty || !value.is_empty()) else {
                continue;
            };
            let there = || headers.contains_key(&rule.name);
            match rule.action {
                AppendAction::AppendIfExistsOrAdd => {
                    headers.append(rule.name.clone(), value);
                }
                AppendAction::AddIfAbsent if there() => {}
                AppendAction::OverwriteIfExists if !there() => {}
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

    fn rule(value: &str, append_action: AppendAction) -> nouns::HeaderValueOption {
        nouns::HeaderValueOption {
            key: "x".into(),
            value: value.into(),
            append_action,
            keep_empty_value: false,
        }
    }

    fn rules(add: Vec<nouns::HeaderValueOption>, remove: &[&str]) -> BothRules {
        let rules = nouns::HeaderRules {
            response_add: add,
            response_remove: remove.iter().map(|&name| name.to_owned()).collect(),
            ..nouns::HeaderRules::default()
        };
        BothRules::try_from(&rules).unwrap()
    }

    fn applied(option: nouns::HeaderValueOption, before: &[&'static str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for value in before {
            headers.append("x", HeaderValue::from_static(value));
        }
        let rules = rules(vec![option], &[]).response;
        assert!(!rules.needs_facts());
        rules.apply_to_response(&mut headers, None);
        let values = headers.get_all("x").iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn actions_do_what_their_names_say() {
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
    fn empty_values_are_left_out_unless_they_are_wanted() {
        let empty = rule("", AppendAction::AppendIfExistsOrAdd);
        assert_eq!(applied(empty.clone(), &[]), [""; 0]);
        let kept = nouns::HeaderValueOption {
            keep_empty_value: true,
            ..empty
        };
        assert_eq!(applied(kept, &[]), [""]);
        let percent = rule("50%%", AppendAction::AppendIfExistsOrAdd);
        assert_eq!(applied(percent, &[]), ["50%"]);
    }

    #[test]
    fn formats_need_facts_and_unknown_operators_are_named() {
        let made = rule("%UPSTREAM_HOST%", AppendAction::AppendIfExistsOrAdd);
        assert!(rules(vec![made], &[]).response.needs_facts());
        for value in ["%NO%", "%BYTES_SENT%", "a\nb", "%"] {
            let wrong = nouns::HeaderRules {
                request_add: vec![rule(value, AppendAction::AddIfAbsent)],
                ..nouns::HeaderRules::default()
            };
            let error = BothRules::try_from(&wrong).unwrap_err();
            assert_eq!(error.path(), "request_headers_to_add[0].header.value");
        }
    }

    #[test]
    fn rules_follow_each_other_and_each_removes_before_it_adds() {
        let append = |value| rule(value, AppendAction::AppendIfExistsOrAdd);
        let overwrite = |value| rule(value, AppendAction::OverwriteIfExistsOrAdd);
        let after = |rules: BothRules| {
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
