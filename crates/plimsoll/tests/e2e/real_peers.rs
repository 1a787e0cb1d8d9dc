//! All tests with real peers. `make test` runs them as a step of its own and knows them by the name
//! of this module.

mod clients;
mod demo;
mod envoys;
mod faults;
mod grpc;
mod relay;
mod reloads;
