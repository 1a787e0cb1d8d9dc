//! Conversations of several replicas with a store, without sockets. [`Set`] is a set of replicas
//! with simulated time and a store that orders writes as etcd does.

mod demand;
mod inputs;
mod model;
mod plans;
mod set;
mod union;
