//! Empty library: a package needs a target besides its benches. See `benches/peers/main.rs`.
