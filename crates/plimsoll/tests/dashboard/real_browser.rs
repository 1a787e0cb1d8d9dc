//! Tests with a real browser. `demo` visits the demo, `numbers` compares what is shown with the
//! admin API, `proxy` visits one proxy, `use_` does what people do, `sizes` looks at large
//! documents and small windows.

mod demo;
mod numbers;
mod proxy;
mod sizes;
mod use_;
