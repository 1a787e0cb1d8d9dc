//! Tests with a real Kubernetes API server: `make test-kubernetes` builds one, or takes the
//! kube-apiserver in `KUBEBUILDER_ASSETS`. `make test` leaves them out, because the build takes
//! minutes; the scripted API server of `plimsoll-kubernetes` covers edge cases there.

mod controller;
mod destination_rules;
mod discovery;
mod machinery;
mod overlays;
mod policies;
mod quick_start;
mod rights;
