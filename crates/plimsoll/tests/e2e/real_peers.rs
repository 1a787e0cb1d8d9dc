//! All tests with real peers. `make test` runs them as a separate step, selected by the name of
//! this module.

mod churn;
mod clients;
mod closed_loop;
mod demo;
mod descriptors;
mod documents;
mod envoys;
mod faults;
mod grpc;
mod http_differential;
mod identity;
mod kubernetes;
mod load_reports;
mod mesh;
mod modules;
mod proxy_curl;
mod proxy_grpc;
mod proxy_xds;
mod proxy_xds_server;
mod refusals;
mod relay;
mod reloads;
mod replicas;
mod restarts;
mod subsets;
