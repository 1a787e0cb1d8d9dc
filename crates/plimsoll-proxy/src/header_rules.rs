//! [`HeaderRules`]: header fields that routes add, replace and remove.

use http::{HeaderMap, HeaderName, HeaderValue};

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

/// `HeaderValueOption.HeaderAppendAction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendAction {
    /// One more value.
    #[default]
    AppendIfExistsOrAdd,
    /// Nothing when there is one.
    AddIfAbsent,
    /// The only value.
    OverwriteIfExistsOrAdd,
    /// The only value, if there was one.
    OverwriteIfExists,
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
