//! Memory of a fuzz target: bounded by the length of its input, whatever the input says.

/// Like [`bounded`], for a target whose input is a sequence of operations on state machines: each
/// may add a few values, and a balancer has tables.
#[allow(dead_code, reason = "not every target is one")]
pub fn bounded_operations(input: &[u8], run: impl FnOnce()) {
    bounded(input, 64 << 20, 64 << 10, run);
}

/// Runs `run` and panics if it uses more than `base` bytes, and `per_byte` for each byte of
/// `input`, at a time.
pub fn bounded(input: &[u8], base: u64, per_byte: u64, run: impl FnOnce()) {
    let used = allocation_counter::measure(run).bytes_max;
    let limit = base + per_byte * input.len() as u64;
    assert!(used <= limit, "{used} bytes of memory, {limit} are allowed");
}
