//! Links the shared library so that it is never unmapped.
//!
//! Threads and thread-local destructors of the module outlive the configuration that loaded it;
//! with `nodelete`, `dlclose` keeps their code mapped.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
