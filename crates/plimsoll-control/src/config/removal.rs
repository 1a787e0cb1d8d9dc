//! [`check_removal`]: refuses an edit that removes much of the configuration at once.
//!
//! The first half of a YAML file is often a valid smaller configuration, and a directory whose
//! files are replaced one by one is empty for a moment: proxies would lose clusters that they use,
//! or, without the rules of identities, any client might be any node.

use std::fmt;
use std::sync::Arc;

use super::ControlConfig;
use super::settings::removed_section;
use crate::identity::Rule;

/// Names that an error lists; the rest is counted.
const MAX_NAMES: usize = 5;

/// An edit that removes more than `reload.max_removed_percent` of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooMuchRemoved {
    /// What the edit removes, such as `2 of 3 listeners (x, y)`, or a section of the file.
    what: String,
    max_percent: u32,
}

impl fmt::Display for TooMuchRemoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, max_percent } = self;
        write!(
            f,
            "the edit removes {what}, more than reload.max_removed_percent allows \
             ({max_percent} %); if that is intended, POST /api/v1/reload?allow_removal=true \
             applies it"
        )
    }
}

/// A part of the configuration: how much of it there is, and how much of that an edit removes.
struct Removal {
    kind: &'static str,
    removed: usize,
    of: usize,
    /// Names of what is removed, if it has names.
    names: Vec<String>,
}

impl Removal {
    fn named(kind: &'static str, names: Vec<String>, of: usize) -> Self {
        let removed = names.len();
        Self {
            kind,
            removed,
            of,
            names,
        }
    }

    /// Something that is counted, not compared: an edit may replace all of it.
    const fn counted(kind: &'static str, before: usize, after: usize) -> Self {
        Self {
            kind,
            removed: before.saturating_sub(after),
            of: before,
            names: Vec::new(),
        }
    }

    fn check(&self, max_percent: u32) -> Result<(), TooMuchRemoved> {
        let Self {
            kind, removed, of, ..
        } = self;
        if *removed as u64 * 100 <= *of as u64 * u64::from(max_percent) {
            return Ok(());
        }
        let mut what = format!("{removed} of {of} {kind}");
        if !self.names.is_empty() {
            let listed = self.names.iter().take(MAX_NAMES);
            let listed: Vec<&str> = listed.map(String::as_str).collect();
            let more = if self.names.len() > MAX_NAMES {
                ", …"
            } else {
                ""
            };
            what += &format!(" ({}{more})", listed.join(", "));
        }
        Err(TooMuchRemoved { what, max_percent })
    }
}

/// Compares an edit with the configuration in force. The setting of the edited files counts, so
/// that an edit can allow itself to remove more.
pub(crate) fn check_removal(
    in_force: &ControlConfig,
    edited: &ControlConfig,
) -> Result<(), TooMuchRemoved> {
    let max_percent = edited.operation.max_removed_percent;
    if max_percent < 100
        && let Some(section) = removed_section(in_force, edited)
    {
        let what = section.to_owned();
        return Err(TooMuchRemoved { what, max_percent });
    }
    let removals = [
        removed_services(in_force, edited),
        removed_listeners(in_force, edited),
        Removal::counted("endpoints", all_endpoints(in_force), all_endpoints(edited)),
        Removal::counted(
            "rules of identities",
            rules(in_force).len(),
            rules(edited).len(),
        ),
        // A rule that was cut off allows more than before.
        Removal::counted(
            "restrictions of identities (fleets, zones, node_ids, services, report_load)",
            restrictions(in_force),
            restrictions(edited),
        ),
    ];
    removals
        .iter()
        .try_for_each(|removal| removal.check(max_percent))
}

fn removed_services(in_force: &ControlConfig, edited: &ControlConfig) -> Removal {
    let services = in_force
        .services
        .iter()
        .filter(|(name, service)| {
            let kept = edited.services.get(*name);
            // A service that had endpoints and has none left is as good as gone.
            kept.is_none_or(|kept| endpoints(kept) == 0 && endpoints(service) > 0)
        })
        .map(|(name, _)| name.to_string())
        .collect();
    Removal::named("services", services, in_force.services.len())
}

fn removed_listeners(in_force: &ControlConfig, edited: &ControlConfig) -> Removal {
    let listeners = in_force
        .listeners
        .keys()
        .filter(|name| !edited.listeners.contains_key(*name))
        .map(ToString::to_string)
        .collect();
    Removal::named("listeners", listeners, in_force.listeners.len())
}

fn rules(config: &ControlConfig) -> &[Arc<Rule>] {
    config.rules.rules.as_deref().unwrap_or_default()
}

/// Counts the settings of rules that allow a client less than everything.
fn restrictions(config: &ControlConfig) -> usize {
    let of_rule = |rule: &Rule| {
        let lists = [&rule.fleets, &rule.zones, &rule.node_ids, &rule.services];
        lists.iter().filter(|list| list.is_some()).count() + usize::from(!rule.report_load)
    };
    rules(config).iter().map(|rule| of_rule(rule)).sum()
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

    const SECURED: &str = "{tls: {certificate: a, private_key: b, client_ca: c}, ";

    #[test]
    fn a_section_that_protects_or_finds_services_stays() {
        let after = parse("{reload: {max_removed_percent: 99}}");
        for (section, text) in [
            ("identities", format!("{SECURED} identities: []}}")),
            ("tls", format!("{SECURED}}}")),
            (
                "admin_tls",
                "{admin_tls: {certificate: a, private_key: b}}".to_owned(),
            ),
            ("kubernetes", "kubernetes: {}".to_owned()),
            ("consul", "consul: {}".to_owned()),
            (
                "dns",
                "dns: {names: [{name: a.example, cluster: a}]}".to_owned(),
            ),
            ("relay", "relay: {address: 'h:1'}".to_owned()),
            (
                "store",
                "store: {etcd: {endpoints: ['[::1]:1']}}".to_owned(),
            ),
        ] {
            let before = parse(&text);
            assert_eq!(
                refusal(&before, &after),
                format!(
                    "the edit removes {section}, more than reload.max_removed_percent allows \
                     (99 %); if that is intended, POST /api/v1/reload?allow_removal=true applies it"
                )
            );
            assert_eq!(refusal(&before, &before), "", "{section}");
            assert_eq!(refusal(&after, &before), "", "{section}");
            let allowed = parse("{reload: {max_removed_percent: 100}}");
            assert_eq!(refusal(&before, &allowed), "", "{section}");
        }
        let verifying = parse(&format!("{SECURED}}}"));
        let anybody = parse("{tls: {certificate: a, private_key: b}}");
        assert!(refusal(&verifying, &anybody).contains("removes tls.client_ca, more"));
    }

    #[test]
    fn rules_of_identities_and_their_restrictions_are_counted() {
        let with = |identities: &str| parse(&format!("{SECURED} identities: [{identities}]}}"));
        let rule = |name: &str| format!("{{uri: 'spiffe://td/{name}', fleets: [{name}]}}");
        let four = with(&["a", "b", "c", "d"].map(rule).join(", "));
        let other = with(&["e", "f"].map(rule).join(", "));
        assert_eq!(refusal(&four, &other), "", "half, and other ones");
        let one = with(&rule("a"));
        let refused = refusal(&four, &one);
        assert!(
            refused.contains("removes 3 of 4 rules of identities, more"),
            "{refused}"
        );
        assert!(refusal(&one, &with("")).contains("1 of 1 rules of identities"));
        // The last rule was cut off after its name.
        let wider = refusal(&one, &with("{uri: 'spiffe://td/a'}"));
        assert!(
            wider.contains("removes 1 of 1 restrictions of identities (fleets,"),
            "{wider}"
        );
        for field in [
            "zones: [z]",
            "node_ids: [n]",
            "services: [s]",
            "report_load: false",
        ] {
            let narrow = with(&format!("{{uri: 'spiffe://td/a', {field}}}"));
            let wide = with("{uri: 'spiffe://td/a'}");
            assert!(refusal(&narrow, &wide).contains("1 of 1 restrictions"));
            assert_eq!(refusal(&wide, &narrow), "");
        }
    }
}
