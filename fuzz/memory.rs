//! Memory of a fuzz target: bounded by the length of its input, whatever the input says.

/// Runs `run` and panics if it uses more than `base` bytes, and `per_byte` for each byte of
/// `input`, at a time.
pub fn bounded(input: &[u8], base: u64, per_byte: u64, run: impl FnOnce()) {
    let used = allocation_counter::measure(run).bytes_max;
    let limit = base + per_byte * input.len() as u64;
    assert!(used <= limit, "{used} bytes of memory, {limit} are allowed");
}
