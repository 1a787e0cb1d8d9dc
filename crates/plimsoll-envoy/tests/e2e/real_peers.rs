//! All tests with real peers; `make test` selects them by the name of this module.

mod churn;
mod config;
mod control_plane;
mod cost;
mod example;
mod imports;
mod observed_load;
mod signals;
mod suite;
