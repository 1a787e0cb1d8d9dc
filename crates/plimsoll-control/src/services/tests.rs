//! Sources that come and go, and services that several of them have.

use proptest::prelude::*;

use super::*;
use crate::state::tests::driver::parse;

use SourceId::{Files, Kubernetes};

/// A service `name` with this ramp and a host in zone `a` with this port.
fn service(name: &str, ramp: u32, port: u16) -> Arc<Service> {
    let text = format!(
        "services: [{{cluster: {{name: '{name}'}}, ramp: {ramp}, endpoints: [{{locality: {{zone: \
         a}}, lb_endpoints: ['10.0.0.1:{port}']}}]}}]"
    );
    Arc::clone(&parse(&text).services[name])
}

fn changes(source: SourceId, is_complete: bool, all: &[(&str, u32, u16)]) -> ServiceChanges {
    let found = |&(name, ramp, port): &(&str, u32, u16)| {
        let service = service(name, ramp, port);
        let object = (source != Files).then(|| format!("Service {source:?}/{name}").into());
        (name.into(), Some(Found { service, object }))
    };
    ServiceChanges {
        source,
        is_complete,
        services: all.iter().map(found).collect(),
    }
}

fn gone(source: SourceId, name: &str) -> ServiceChanges {
    ServiceChanges {
        is_complete: false,
        services: [(name.into(), None)].into(),
        ..ServiceChanges::none(source)
    }
}

impl Services {
    /// Applies changes; returns the names of changed services, and whether settings changed.
    fn change(&mut self, changes: ServiceChanges) -> (Vec<String>, bool) {
        self.handle_changes(changes);
        let changed = self.poll_changed().unwrap_or_default();
        let names = changed.names.iter().map(ToString::to_string);
        (names.collect(), changed.settings)
    }

    /// Returns the services in force with their ramps.
    fn ramps(&self) -> Vec<(&str, u32)> {
        let services = self.in_force.iter();
        services.map(|(name, one)| (&**name, one.ramp)).collect()
    }

    fn texts(&mut self) -> Vec<String> {
        let conflicts = std::iter::from_fn(|| self.poll_conflict());
        conflicts.map(|one| one.to_string()).collect()
    }
}

#[test]
fn what_is_complete_for_one_source_says_nothing_about_others() {
    let mut services = Services::default();
    let both = services.change(changes(Kubernetes, true, &[("a", 1, 80), ("b", 1, 80)]));
    assert_eq!(both, (vec!["a".to_owned(), "b".to_owned()], true));
    services.change(changes(Files, true, &[("c", 2, 80)]));
    assert_eq!(services.ramps(), [("a", 1), ("b", 1), ("c", 2)]);
    services.change(ServiceChanges::none(Files));
    assert_eq!(
        services.ramps(),
        [("a", 1), ("b", 1)],
        "the files have none"
    );
    services.change(changes(Files, false, &[("c", 2, 80)]));
    let listed_again = services.change(changes(Kubernetes, true, &[("b", 1, 80)]));
    assert_eq!(listed_again, (vec!["a".to_owned()], true));
    assert_eq!(services.ramps(), [("b", 1), ("c", 2)]);
    assert_eq!(services.texts(), [""; 0]);
}

#[test]
fn a_change_is_of_settings_or_of_endpoints_or_none() {
    for source in SourceId::ALL {
        let mut services = Services::default();
        let of = |ramp, port| changes(source, true, &[("a", ramp, port), ("b", 5, 80)]);
        services.change(of(1, 80));
        let names = || vec!["a".to_owned()];
        assert_eq!(services.change(of(1, 80)), (vec![], false), "{source:?}");
        assert_eq!(services.change(of(1, 81)), (names(), false));
        assert_eq!(services.change(of(2, 81)), (names(), true));
        services.handle_changes(of(3, 81));
        services.handle_changes(of(3, 82));
        let changed = services.poll_changed().unwrap();
        assert!(changed.settings, "of the first of two batches");
        assert_eq!(services.change(gone(source, "a")), (names(), true));
        assert_eq!(services.change(gone(source, "a")), (vec![], false));
    }
}

#[test]
fn of_two_sources_the_one_of_higher_precedence_wins_and_the_other_takes_over() {
    let mut services = Services::default();
    services.change(changes(Kubernetes, true, &[("a", 1, 80)]));
    let hidden = services.change(changes(Files, true, &[("a", 2, 80)]));
    assert_eq!(hidden, (vec!["a".to_owned()], true));
    assert_eq!(services.ramps(), [("a", 2)]);
    let text = "service a is in the files and in Kubernetes: that of the files is used";
    assert_eq!(services.texts(), [text]);
    let ignored = services.change(changes(Kubernetes, true, &[("a", 3, 80)]));
    assert_eq!(ignored, (vec![], false));
    assert_eq!(services.texts(), [""; 0], "it is known");
    assert_eq!(services.ignored().len(), 1);
    let taken_over = services.change(ServiceChanges::none(Files));
    assert_eq!(taken_over, (vec!["a".to_owned()], true));
    assert_eq!(services.ramps(), [("a", 3)], "its last state");
    assert_eq!(services.ignored().len(), 0);
    services.change(changes(Files, true, &[("a", 2, 80)]));
    assert_eq!(services.texts(), [text], "it began again");
    assert_eq!(services.change(gone(Kubernetes, "a")), (vec![], false));
    assert_eq!(services.ignored().len(), 0);
    let names: Vec<_> = services.names(Kubernetes).collect();
    assert_eq!((names, services.ramps()), (vec![], vec![("a", 2)]));
}

#[test]
fn a_service_has_the_place_of_the_source_that_it_comes_from() {
    let mut services = Services::default();
    let config = parse("services: [{cluster: {name: a}}]");
    services.handle_changes(changes(Kubernetes, true, &[("a", 1, 80), ("b", 1, 80)]));
    let place =
        |services: &Services, name: &str| services.put_into(&config).origins.place(name, "");
    assert_eq!(place(&services, "a").unwrap(), "Service Kubernetes/a");
    services.handle_changes(ServiceChanges::of_files(&config));
    assert_eq!(place(&services, "a").unwrap(), "test:1");
    assert_eq!(place(&services, "b").unwrap(), "Service Kubernetes/b");
    let merged = services.put_into(&config);
    assert!(Arc::ptr_eq(&merged.services, services.in_force()));
    assert_eq!(merged.services["a"], config.services["a"]);
}

#[test]
fn services_that_are_read_again_are_kept_once() {
    let mut services = Services::default();
    services.change(changes(Files, true, &[("a", 1, 80)]));
    let again = changes(Files, true, &[("a", 1, 80)]);
    let read = Arc::clone(&again.services["a"].as_ref().unwrap().service);
    assert_eq!(services.change(again), (vec![], false));
    assert!(Arc::ptr_eq(&services.in_force()["a"], &read));
}

/// A step: the source, whether the batch is complete, and services with a ramp, or without if they
/// are gone.
type Step = (SourceId, bool, BTreeMap<u8, Option<u32>>);

fn step() -> impl Strategy<Value = Step> {
    let services = prop::collection::btree_map(0_u8..4, prop::option::of(1_u32..3), 0..4);
    (
        prop::sample::select(SourceId::ALL.to_vec()),
        any::<bool>(),
        services,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is in force is what the sources said last, each name of the first source that has it;
    /// changes are exactly the differences, and every hidden service is known.
    #[test]
    fn the_first_source_that_has_a_name_is_in_force(steps in prop::collection::vec(step(), 1..10)) {
        let known: Vec<_> = (1..3)
            .map(|ramp| (0..4_u8).map(|n| service(&n.to_string(), ramp, 80)).collect::<Vec<_>>())
            .collect();
        let mut services = Services::default();
        let mut model: BTreeMap<SourceId, BTreeMap<String, u32>> = BTreeMap::new();
        for (source, is_complete, batch) in steps {
            let own = model.entry(source).or_default();
            if is_complete {
                own.clear();
            }
            for (number, ramp) in &batch {
                match ramp {
                    Some(ramp) => drop(own.insert(number.to_string(), *ramp)),
                    None => drop(own.remove(&number.to_string())),
                }
            }
            let found = |(number, ramp): (&u8, &Option<u32>)| {
                let service = ramp.map(|ramp| &known[ramp as usize - 1][usize::from(*number)]);
                let found = service.map(|service| Found {
                    service: Arc::clone(service),
                    object: None,
                });
                (number.to_string().into(), found)
            };
            let before = Arc::clone(services.in_force());
            services.handle_changes(ServiceChanges {
                source,
                is_complete,
                services: batch.iter().map(found).collect(),
            });
            let mut expected = BTreeMap::new();
            let mut ignored = BTreeSet::new();
            for (source, own) in &model {
                for (name, ramp) in own {
                    if expected.contains_key(&**name) {
                        ignored.insert((*source, Arc::from(&**name)));
                    } else {
                        expected.insert(&**name, *ramp);
                    }
                }
            }
            prop_assert_eq!(services.ramps(), expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(services.ignored(), &ignored);
            let changed = services.poll_changed().unwrap_or_default();
            for number in 0..4_u8 {
                let name = number.to_string();
                let differs = before.get(&*name) != services.in_force().get(&*name);
                prop_assert_eq!(changed.names.contains(&*name), differs, "{}", name);
            }
        }
    }
}
