//! How much time the cores have left: what a machine cannot do is no fault of the cluster.

/// Time of all cores since the machine began, in ticks, and what was idle of it.
#[derive(Clone, Copy)]
pub struct Cores {
    all: u64,
    idle: u64,
}

impl Cores {
    /// Reads `/proc/stat`: its first line is of all cores. The fourth number is idle, the fifth
    /// waits for disks.
    pub fn now() -> Cores {
        let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
        let first = text.lines().next().expect("a line");
        let ticks: Vec<u64> = first.split_whitespace().flat_map(str::parse).collect();
        Cores { all: ticks.iter().take(8).sum(), idle: ticks[3] + ticks[4] }
    }

    /// Returns the share of the time since then that was idle.
    pub fn idle_since(self) -> f64 {
        let now = Cores::now();
        (now.idle - self.idle) as f64 / (now.all - self.all).max(1) as f64
    }
}
