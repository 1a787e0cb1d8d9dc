//! [`check_removal`]: refuses an edit that removes much of the configuration at once.
//!
//! The first half of a YAML file is often a valid smaller configuration, and a directory whose
//! files are replaced one by one is empty for a moment: proxies would lose clusters that they use.

use std::fmt;

use super::ControlConfig;

/// Names that an error lists; the rest is counted.
const MAX_NAMES: usize = 5;

/// An edit that removes more than `reload.max_removed_percent` of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooMuchRemoved {
    kind: &'static str,
    removed: usize,
    of: usize,
    /// Names of what is removed, if it has names.
    names: Vec<String>,
    max_percent: u32,
}

impl fmt::Display for TooMuchRemoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind, removed, of, ..
        } = self;
        write!(f, "the edit removes {removed} of {of} {kind}")?;
        if let Some((first, rest)) = self.names.split_first() {
            write!(f, " ({first}")?;
            for name in rest.iter().take(MAX_NAMES - 1) {
                write!(f, ", {name}")?;
            }
            let more = if self.names.len() > MAX_NAMES {
                ", …"
            } else {
                ""
            };
            write!(f, "{more})")?;
        }
        write!(
            f,
            ", more than reload.max_removed_percent allows ({} %); if that is intended, \
             POST /api/v1/reload?allow_removal=true applies it",
            self.max_percent
        )
    }
}

/// Compares an edit with the configuration in force. The setting of the edited files counts, so
/// that an edit can allow itself to remove more.
pub(crate) fn check_removal(
    in_force: &ControlConfig,
    edited: &ControlConfig,
) -> Result<(), TooMuchRemoved> {
    let services: Vec<String> = in_force
        .services
        .iter()
        .filter(|(name, service)| {
            let kept = edited.services.get(*name);
            // A service that had endpoints and has none left is as good as gone.
            kept.is_none_or(|kept| endpoints(kept) == 0 && endpoints(service) > 0)
        })
        .map(|(name, _)| name.to_string())
        .collect();
    let listeners: Vec<String> = in_force
        .listeners
        .keys()
        .filter(|name| !edited.listeners.contains_key(*name))
        .map(ToString::to_string)
        .collect();
    let before = all_endpoints(in_force);
    // Endpoints are counted, not compared: a deployment may replace all of them.
    let fewer = before.saturating_sub(all_endpoints(edited));
    let removals = [
        (
            "services",
            services.len(),
            in_force.services.len(),
            services,
        ),
        (
            "listeners",
            listeners.len(),
            in_force.listeners.len(),
            listeners,
        ),
        ("endpoints", fewer, before, Vec::new()),
    ];
    for (kind, removed, of, names) in removals {
        let max_percent = edited.max_removed_percent;
        if removed as u64 * 100 > of as u64 * u64::from(max_percent) {
            return Err(TooMuchRemoved {
                kind,
                removed,
                of,
                names,
                max_percent,
            });
        }
    }
    Ok(())
}

fn all_endpoints(config: &ControlConfig) -> usize {
    config
        .services
        .values()
        .map(|service| endpoints(service))
        .sum()
}

fn endpoints(service: &super::Service) -> usize {
    let localities = service.assignment.endpoints().iter();
    localities.map(|locality| locality.lb_endpoints.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;

    fn parse(text: &str) -> ControlConfig {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: text.to_owned(),
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    /// A configuration of services with this many endpoints each.
    fn services(settings: &str, services: &[(&str, usize)]) -> ControlConfig {
        let services: Vec<String> = services
            .iter()
            .map(|(name, endpoints)| {
                let endpoints: Vec<String> = (0..*endpoints)
                    .map(|host| format!("'10.0.0.{host}:80'"))
                    .collect();
                let endpoints = endpoints.join(", ");
                format!(
                    "{{cluster: {{name: {name}}}, endpoints: [{{locality: {{zone: a}},
                       lb_endpoints: [{endpoints}]}}]}}"
                )
            })
            .collect();
        parse(&format!("{settings}\nservices: [{}]", services.join(", ")))
    }

    fn refusal(before: &ControlConfig, after: &ControlConfig) -> String {
        check_removal(before, after).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn an_edit_may_remove_half_but_not_more() {
        let before = services("", &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let half = services("", &[("a", 1), ("b", 1)]);
        assert_eq!(refusal(&before, &half), "");
        let quarter = services("", &[("a", 3)]);
        assert_eq!(
            refusal(&before, &quarter),
            "the edit removes 3 of 4 services (b, c, d), more than reload.max_removed_percent \
             allows (50 %); if that is intended, POST /api/v1/reload?allow_removal=true applies it"
        );
        assert_eq!(refusal(&quarter, &before), "", "services may be added");
        assert!(refusal(&before, &parse("{}")).contains("4 of 4 services"));
        assert_eq!(refusal(&parse("{}"), &before), "");
        assert_eq!(refusal(&parse("{}"), &parse("{}")), "");
    }

    #[test]
    fn endpoints_are_counted_in_all_services_together() {
        let before = services("", &[("a", 4), ("b", 6)]);
        assert_eq!(refusal(&before, &services("", &[("a", 4), ("b", 1)])), "");
        let fewer = services("", &[("a", 2), ("b", 2)]);
        assert!(refusal(&before, &fewer).contains("removes 6 of 10 endpoints, more"));
        // A service without endpoints is as good as gone; both are more than a third.
        let empty = services("reload: {max_removed_percent: 40}", &[("a", 0), ("b", 10)]);
        assert!(refusal(&before, &empty).contains("1 of 2 services (a)"));
        let still_empty = services("reload: {max_removed_percent: 0}", &[("a", 0), ("b", 10)]);
        assert_eq!(refusal(&empty, &still_empty), "");
    }

    #[test]
    fn the_setting_of_the_edit_decides() {
        let before = services("reload: {max_removed_percent: 100}", &[("a", 2), ("b", 2)]);
        let after = |percent: u32| {
            let setting = format!("reload: {{max_removed_percent: {percent}}}");
            services(&setting, &[("a", 1)])
        };
        assert!(refusal(&before, &services("", &[("a", 1)])).contains("endpoints"));
        assert_eq!(refusal(&before, &after(100)), "");
        assert_eq!(refusal(&before, &after(75)), "");
        assert!(refusal(&before, &after(74)).contains("3 of 4 endpoints"));
        assert!(refusal(&before, &after(49)).contains("1 of 2 services"));
    }

    #[test]
    fn listeners_are_counted() {
        let listener = |name: &str| {
            format!(
                "{{name: {name}, address: '127.0.0.1:1', virtual_hosts: [{{name: all, \
                   routes: [{{match: {{prefix: /}}, route: {{cluster: a}}}}]}}]}}"
            )
        };
        let with = |names: &[&str]| {
            let listeners: Vec<String> = names.iter().map(|name| listener(name)).collect();
            let listeners = listeners.join(", ");
            parse(&format!(
                "services: [{{cluster: {{name: a}}}}]\nlisteners: [{listeners}]"
            ))
        };
        assert_eq!(refusal(&with(&["x", "y"]), &with(&["y"])), "");
        let refused = refusal(&with(&["x", "y", "z"]), &with(&["z", "w"]));
        assert!(
            refused.contains("removes 2 of 3 listeners (x, y)"),
            "{refused}"
        );
    }

    #[test]
    fn an_error_lists_some_of_the_names() {
        let names: Vec<String> = (1..=7).map(|index| format!("s{index}")).collect();
        let all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let refused = refusal(&services("", &all), &services("", &all[..1]));
        assert!(
            refused.contains("6 of 7 services (s2, s3, s4, s5, s6, …)"),
            "{refused}"
        );
        let refused = refusal(&services("", &all[..6]), &services("", &all[..1]));
        assert!(
            refused.contains("5 of 6 services (s2, s3, s4, s5, s6), more"),
            "{refused}"
        );
    }
}
