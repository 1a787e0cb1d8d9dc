//! [`HeaderRules`]: header fields that routes add, replace and remove.

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{self as nouns, AppendAction};

/// Changes of header fields, in order; removing comes after adding, as in Envoy.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Fields to add or replace.
    pub add: Vec<HeaderRule>,
    /// Fields to remove.
    pub remove: Vec<HeaderName>,
}

/// One field to add or replace.
#[derive(Clone, Debug)]
pub struct HeaderRule {
    /// Its name.
    pub name: HeaderName,
    /// Its value.
    pub value: HeaderValue,
    /// What happens when it is there, or is not.
    pub action: AppendAction,
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
    let mut rules = HeaderRules::default();
    for (index, option) in add.iter().enumerate() {
        let place = format!("{direction}_headers_to_add[{index}].header");
        let rule = HeaderRule::try_from(option).map_err(|error| error.under(&place))?;
        rules.add.push(rule);
    }
    for (index, name) in remove.iter().enumerate() {
        let place = format!("{direction}_headers_to_remove[{index}]");
        let name = field_name(name).map_err(|error| error.under(&place))?;
        rules.remove.push(name);
    }
    Ok(rules)
}

impl TryFrom<&nouns::HeaderValueOption> for HeaderRule {
    type Error = FieldError;

    fn try_from(option: &nouns::HeaderValueOption) -> Result<Self, FieldError> {
        let name = field_name(&option.key).map_err(|error| error.under("key"))?;
        if option.value.replace("%%", "").contains('%') {
            let reason = "%…% is not replaced here; write %% for a percent sign";
            return Err(FieldError::new("value", reason));
        }
        let value = HeaderValue::from_str(&option.value.replace("%%", "%"));
        let value = value.map_err(|_| FieldError::new("value", "is not a header value"))?;
        Ok(Self {
            name,
            value,
            action: option.append_action,
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
        self.add.extend_from_slice(&outer.add);
        self.remove.extend_from_slice(&outer.remove);
        self
    }

    /// Changes `headers`.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for rule in &self.add {
            let there = || headers.contains_key(&rule.name);
            match rule.action {
                AppendAction::AppendIfExistsOrAdd => {
                    headers.append(rule.name.clone(), rule.value.clone());
                }
                AppendAction::AddIfAbsent if there() => {}
                AppendAction::OverwriteIfExists if !there() => {}
                _ => {
                    headers.insert(rule.name.clone(), rule.value.clone());
                }
            }
        }
        for name in &self.remove {
            headers.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(action: AppendAction, before: &[&'static str]) -> Vec<String> {
        let name = HeaderName::from_static("x");
        let mut headers = HeaderMap::new();
        for value in before {
            headers.append(&name, HeaderValue::from_static(value));
        }
        let rules = HeaderRules {
            add: vec![HeaderRule {
                name: name.clone(),
                value: HeaderValue::from_static("new"),
                action,
            }],
            remove: vec![],
        };
        rules.apply(&mut headers);
        let values = headers.get_all(&name).iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn actions_do_what_their_names_say() {
        use AppendAction::{AddIfAbsent, AppendIfExistsOrAdd};
        use AppendAction::{OverwriteIfExists, OverwriteIfExistsOrAdd};
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
    fn outer_rules_come_last_and_removing_after_adding() {
        let rule = |value| HeaderRule {
            name: HeaderName::from_static("x"),
            value: HeaderValue::from_static(value),
            action: AppendAction::OverwriteIfExistsOrAdd,
        };
        let inner = HeaderRules {
            add: vec![rule("inner")],
            remove: vec![],
        };
        let outer = HeaderRules {
            add: vec![rule("outer")],
            remove: vec![HeaderName::from_static("y")],
        };
        let mut headers = HeaderMap::new();
        headers.insert("y", HeaderValue::from_static("1"));
        inner.followed_by(&outer).apply(&mut headers);
        assert_eq!(headers["x"], "outer");
        assert!(!headers.contains_key("y"));
    }
}
