//! Compiles the shims, C against the machine's DPDK and C++ against libcuckoo, and links the few
//! libraries of DPDK that are used.

/// It has no pkg-config file; the compiler finds it there.
const CUCKOO: &str = "/usr/include/libcuckoo/cuckoohash_map.hh";

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=ovs/frame.h");
    cc::Build::new().file("shim/frame.c").opt_level(3).compile("peers_frame");
    if !std::path::Path::new(CUCKOO).is_file() {
        println!("cargo::error={CUCKOO} is missing; `cargo xtask peers` installs libcuckoo");
        return;
    }
    let mut cuckoo = cc::Build::new();
    cuckoo.cpp(true).std("c++17").file("shim/cuckoo.cc").opt_level(3).flag("-march=native");
    cuckoo.compile("peers_cuckoo");
    // Flags only: `libdpdk` links more than a hundred libraries, of which four are needed.
    let dpdk = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let dpdk = match dpdk {
        Ok(dpdk) => dpdk,
        Err(error) => {
            println!("cargo::error=DPDK is missing; `cargo xtask peers` installs it: {error}");
            return;
        }
    };
    let mut shim = cc::Build::new();
    shim.files(["shim/dpdk.c", "shim/fib.c"])
        .includes(&dpdk.include_paths)
        .opt_level(3)
        .flag("-march=native");
    // As in pkg-config: every file sees DPDK's configuration first.
    shim.flag("-include").flag("rte_config.h");
    shim.compile("peers_dpdk");
    for folder in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    for library in ["rte_member", "rte_hash", "rte_ring", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
