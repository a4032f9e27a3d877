//! What sizes of a measurement depend on: caches and memory, as the kernel names them.

/// Bytes of the last-level cache of core 0; `None` where the kernel does not say.
pub fn last_level_cache_bytes() -> Option<usize> {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
    };
    (0..8).filter_map(size).max()
}

/// Bytes that the kernel can give without swapping; `None` where it does not say.
pub fn memory_available_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
