//! How the process gets its memory (docs/decisions/0037-allocator.md).

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Lets the kernel use pages of 4 KiB only, from now on. A server has thousands of buffers that are
/// filled in part; with pages of 2 MiB their unused parts would be resident too.
pub(crate) fn use_small_pages() {
    // An error means that the kernel has no other pages.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
