//! Header rules: `HeaderValueOption` and names to remove.

use plimsoll_core::units::FieldError;
use plimsoll_xds::route::{AppendAction, HeaderRules, HeaderValueOption};
use plimsoll_xds::yaml::proto_json::{Named, ProtoEnum};
use serde::Deserialize;

/// `HeaderValueOption`.
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RouteHeaderValueOption")
)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderValueOptionYaml {
    /// The field.
    header: HeaderValueYaml,
    /// What happens when it is there already. Default `APPEND_IF_EXISTS_OR_ADD`.
    append_action: Option<Named<Append>>,
    /// The older spelling: false overwrites.
    append: Option<bool>,
    /// Add it even if its value comes out empty.
    #[serde(default)]
    keep_empty_value: bool,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RouteHeaderValue")
)]
#[serde(deny_unknown_fields)]
struct HeaderValueYaml {
    /// Its name.
    key: String,
    /// Its value, with operators such as `%DOWNSTREAM_REMOTE_ADDRESS%`.
    #[serde(default)]
    value: String,
}

#[derive(Clone, Copy, Debug)]
struct Append(AppendAction);

impl ProtoEnum for Append {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        (
            "APPEND_IF_EXISTS_OR_ADD",
            0,
            Self(AppendAction::AppendIfExistsOrAdd),
        ),
        ("ADD_IF_ABSENT", 1, Self(AppendAction::AddIfAbsent)),
        (
            "OVERWRITE_IF_EXISTS_OR_ADD",
            2,
            Self(AppendAction::OverwriteIfExistsOrAdd),
        ),
        (
            "OVERWRITE_IF_EXISTS",
            3,
            Self(AppendAction::OverwriteIfExists),
        ),
    ];
}

/// What is added and what is removed.
type Lists = (Vec<HeaderValueOptionYaml>, Vec<String>);

/// The four lists of one message; paths start at it.
pub(super) fn header_rules(request: Lists, response: Lists) -> Result<HeaderRules, FieldError> {
    Ok(HeaderRules {
        request_add: added("request", request.0)?,
        request_remove: request.1,
        response_add: added("response", response.0)?,
        response_remove: response.1,
    })
}

fn added(
    direction: &str,
    options: Vec<HeaderValueOptionYaml>,
) -> Result<Vec<HeaderValueOption>, FieldError> {
    let options = options.into_iter().enumerate().map(|(index, option)| {
        let place = format!("{direction}_headers_to_add[{index}]");
        option.checked().map_err(|error| error.under(&place))
    });
    options.collect()
}

impl HeaderValueOptionYaml {
    fn checked(self) -> Result<HeaderValueOption, FieldError> {
        let append_action = match (self.append_action, self.append) {
            (Some(_), Some(_)) => {
                return Err(FieldError::new("append", "stands beside append_action"));
            }
            (Some(action), None) => action.0.0,
            (None, Some(false)) => AppendAction::OverwriteIfExistsOrAdd,
            (None, _) => AppendAction::AppendIfExistsOrAdd,
        };
        Ok(HeaderValueOption {
            key: self.header.key,
            value: self.header.value,
            append_action,
            keep_empty_value: self.keep_empty_value,
        })
    }
}
