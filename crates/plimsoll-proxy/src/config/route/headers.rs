//! Header rules: `HeaderValueOption` and names to remove.

use http::{HeaderName, HeaderValue};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoEnum};
use serde::Deserialize;

use crate::header_rules::{AppendAction, HeaderRule, HeaderRules};

/// `HeaderValueOption`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderValueOptionYaml {
    header: HeaderValueYaml,
    append_action: Option<Named<AppendAction>>,
    /// The older spelling.
    append: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderValueYaml {
    key: String,
    #[serde(default)]
    value: String,
}

impl ProtoEnum for AppendAction {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("APPEND_IF_EXISTS_OR_ADD", 0, Self::AppendIfExistsOrAdd),
        ("ADD_IF_ABSENT", 1, Self::AddIfAbsent),
        (
            "OVERWRITE_IF_EXISTS_OR_ADD",
            2,
            Self::OverwriteIfExistsOrAdd,
        ),
        ("OVERWRITE_IF_EXISTS", 3, Self::OverwriteIfExists),
    ];
}

/// Both lists of one message, and what their names start with.
pub(super) struct HeaderRulesYaml {
    pub(super) prefix: &'static str,
    pub(super) add: Vec<HeaderValueOptionYaml>,
    pub(super) remove: Vec<String>,
}

impl HeaderRulesYaml {
    /// The checked form; paths start at the message that has the lists.
    pub(super) fn checked(self) -> Result<HeaderRules, FieldError> {
        let mut rules = HeaderRules::default();
        for (index, option) in self.add.into_iter().enumerate() {
            let place = format!("{}_headers_to_add[{index}]", self.prefix);
            rules
                .add
                .push(option.checked().map_err(|error| error.under(&place))?);
        }
        for (index, name) in self.remove.iter().enumerate() {
            let place = format!("{}_headers_to_remove[{index}]", self.prefix);
            rules
                .remove
                .push(field_name(name).map_err(|error| error.under(&place))?);
        }
        Ok(rules)
    }
}

impl HeaderValueOptionYaml {
    fn checked(self) -> Result<HeaderRule, FieldError> {
        let name = field_name(&self.header.key).map_err(|error| error.under("header.key"))?;
        let action = match (self.append_action, self.append) {
            (Some(_), Some(_)) => {
                return Err(FieldError::new("append", "stands beside append_action"));
            }
            (Some(action), None) => action.0,
            (None, Some(false)) => AppendAction::OverwriteIfExistsOrAdd,
            (None, _) => AppendAction::AppendIfExistsOrAdd,
        };
        let plain = self.header.value.replace("%%", "");
        if plain.contains('%') {
            let reason = "%…% is not replaced here; write %% for a percent sign";
            return Err(FieldError::new("header.value", reason));
        }
        let value = self.header.value.replace("%%", "%");
        let value = HeaderValue::from_str(&value)
            .map_err(|_| FieldError::new("header.value", "is not a header value"))?;
        Ok(HeaderRule {
            name,
            value,
            action,
        })
    }
}

/// A field that rules may touch: not one of the message's frame.
pub(super) fn field_name(name: &str) -> Result<HeaderName, FieldError> {
    let reason = || FieldError::new("", format!("{name:?} is not the name of a header field"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| reason())?;
    if name == http::header::HOST {
        let reason = "the host is changed with host_rewrite_literal";
        return Err(FieldError::new("", reason));
    }
    Ok(name)
}
