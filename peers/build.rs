//! Compiles the C shim against the machine's DPDK and links the few libraries of it that are used.

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=ovs/frame.h");
    cc::Build::new().file("shim/frame.c").opt_level(3).compile("peers_frame");
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
    shim.file("shim/dpdk.c").includes(&dpdk.include_paths).opt_level(3).flag("-march=native");
    // As pkg-config says: every file sees DPDK's configuration first.
    shim.flag("-include").flag("rte_config.h");
    shim.compile("peers_dpdk");
    for folder in &dpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    for library in ["rte_member", "rte_hash", "rte_ring", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
