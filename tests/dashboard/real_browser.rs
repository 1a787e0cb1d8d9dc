//! Tests with a real browser. `compare` covers shadow mode, `demo` opens the demo, `numbers`
//! compares the page with the admin API, `history` covers what was recorded, `proxy` opens one
//! proxy, `replicas` several control planes, `rules` covers what every page must be,
//! `use_` covers interaction, `sizes` large documents and small windows.

mod compare;
mod demo;
mod history;
mod numbers;
mod proxy;
mod replicas;
mod rules;
mod sizes;
mod use_;
