//! [`Origins`]: where services are written, as `file:line` or as a Kubernetes object, for the audit
//! of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::Document;

/// Fields of a service whose lines are kept.
const FIELDS: [&str; 6] = [
    "mode",
    "ramp",
    "delivery",
    "endpoints",
    "cluster",
    "overprovisioning_factor",
];

/// Places of services and of their fields. They do not matter for what is served: all are equal.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    services: BTreeMap<Arc<str>, ServiceOrigin>,
    /// Objects that services were discovered in.
    discovered: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Clone, Debug, Default)]
struct ServiceOrigin {
    file: Arc<str>,
    line: u64,
    fields: BTreeMap<&'static str, u64>,
}

impl PartialEq for Origins {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Origins {
    /// Returns the place of a field of a service, or of the service if the field is not written.
    pub fn place(&self, service: &str, field: &str) -> Option<String> {
        let Some(origin) = self.services.get(service) else {
            return self.discovered.get(service).map(ToString::to_string);
        };
        let line = origin.fields.get(field).copied().unwrap_or(origin.line);
        Some(format!("{}:{line}", origin.file))
    }

    /// Adds a service that was discovered in an object.
    pub(crate) fn add_discovered(&mut self, name: &Arc<str>, object: Arc<str>) {
        self.discovered.insert(Arc::clone(name), object);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.discovered.remove(name);
    }

    /// Whether a service comes from an object, not from a file.
    pub(crate) fn is_discovered(&self, name: &str) -> bool {
        self.discovered.contains_key(name)
    }

    /// Adds the service that has this index in a file.
    pub(super) fn add(&mut self, name: &Arc<str>, file: &str, document: &Document, index: usize) {
        // The place of a field that is not written is that of its service.
        let line = |path: &str| {
            let located = document.locate(FieldError::new(path, ""));
            located.location().map_or(1, |location| location.line)
        };
        let path = format!("services[{index}]");
        let field = |field| (field, line(&format!("{path}.{field}")));
        let origin = ServiceOrigin {
            file: file.into(),
            line: line(&path),
            fields: FIELDS.map(field).into(),
        };
        self.services.insert(Arc::clone(name), origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_located_in_a_file_or_in_an_object() {
        let text = "services:\n- cluster: {name: orders}\n  ramp: 5\n";
        let document = Document::parse(text).unwrap();
        let mut origins = Origins::default();
        origins.add(&"orders".into(), "control.yaml", &document, 0);
        origins.add_discovered(&"search".into(), "Service shop/search@7".into());
        let place = |origins: &Origins, service: &str, field: &str| {
            origins.place(service, field).unwrap_or_default()
        };
        assert_eq!(place(&origins, "orders", "ramp"), "control.yaml:3");
        assert_eq!(place(&origins, "orders", "mode"), "control.yaml:2");
        assert_eq!(place(&origins, "orders", ""), "control.yaml:2");
        assert_eq!(place(&origins, "search", "ramp"), "Service shop/search@7");
        assert_eq!(origins.place("lost", ""), None);
        assert!(origins.is_discovered("search") && !origins.is_discovered("orders"));
        assert_eq!(origins, Origins::default(), "places do not matter");
        origins.remove("search");
        assert_eq!(origins.place("search", ""), None);
        assert!(!origins.is_discovered("search"));
    }
}
