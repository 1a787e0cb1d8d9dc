//! [`Origins`]: where services are written, as `file:line` or as an object of another source, for
//! the audit of changes.

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
    services: Arc<BTreeMap<Arc<str>, ServiceOrigin>>,
    /// Objects that services in force come from.
    objects: Arc<BTreeMap<Arc<str>, Arc<str>>>,
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
        if let Some(object) = self.objects.get(service) {
            return Some(object.to_string());
        }
        let origin = self.services.get(service)?;
        let line = origin.fields.get(field).copied().unwrap_or(origin.line);
        Some(format!("{}:{line}", origin.file))
    }

    /// Returns the places of the files with the objects of services that come from none.
    pub(crate) fn with_objects(&self, objects: Arc<BTreeMap<Arc<str>, Arc<str>>>) -> Self {
        Self {
            services: Arc::clone(&self.services),
            objects,
        }
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
        Arc::make_mut(&mut self.services).insert(Arc::clone(name), origin);
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
        let objects = [("search".into(), "Service shop/search@7".into())];
        let origins = origins.with_objects(Arc::new(objects.into()));
        let place = |origins: &Origins, service: &str, field: &str| {
            origins.place(service, field).unwrap_or_default()
        };
        assert_eq!(place(&origins, "orders", "ramp"), "control.yaml:3");
        assert_eq!(place(&origins, "orders", "mode"), "control.yaml:2");
        assert_eq!(place(&origins, "orders", ""), "control.yaml:2");
        assert_eq!(place(&origins, "search", "ramp"), "Service shop/search@7");
        assert_eq!(origins.place("lost", ""), None);
        assert_eq!(origins, Origins::default(), "places do not matter");
        let without = origins.with_objects(Arc::default());
        assert_eq!(without.place("search", ""), None);
        assert_eq!(place(&without, "orders", "ramp"), "control.yaml:3");
    }
}
