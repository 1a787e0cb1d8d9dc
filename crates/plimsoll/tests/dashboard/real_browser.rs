//! Tests with a real browser. `numbers` compares what is shown with the admin API, `use_` does what
//! people do, `sizes` looks at large documents and small windows.

mod numbers;
mod sizes;
mod use_;
