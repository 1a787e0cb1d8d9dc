//! All tests with real peers. `make test` runs them as a separate step, selected by the name of
//! this module.

mod capacity;
mod churn;
mod clients;
mod closed_loop;
mod cluster_settings;
mod consul;
mod dead_zone;
mod demand_under_failure;
mod demo;
mod descriptors;
mod documents;
mod envoys;
mod faults;
mod grpc;
mod grpc_tls;
mod http_differential;
mod identity;
mod kubernetes;
mod load_reports;
mod losses;
mod mesh;
mod modules;
mod objectives;
mod proxy_curl;
mod proxy_grpc;
mod proxy_xds;
mod proxy_xds_server;
mod refusals;
mod relay;
mod reloads;
mod replicas;
mod restarts;
mod silent_reports;
mod subsets;
mod zone_drain;
