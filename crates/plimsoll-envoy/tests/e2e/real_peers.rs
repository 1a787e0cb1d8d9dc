//! All tests with real peers; `make test` selects them by the name of this module.

mod config;
mod imports;
mod suite;
