//! All tests with real peers; `make test` selects them by the name of this module.

mod churn;
mod config;
mod example;
mod imports;
mod suite;
