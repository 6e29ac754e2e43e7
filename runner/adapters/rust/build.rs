//! build.rs: which release of cortiq-core is linked, and whether it has encoders.
//!
//! Its law: "version" of hello is that of the crate, not of the adapter. The crate names its version nowhere, and what is
//! asked for in Cargo.toml may be a range; the lock file says which one it is.
use std::{env, fs, path::Path};

/// The first release that was seen with a public encoder.
const ENCODES: [u32; 3] = [0, 8, 53];
const CRATE: &str = "name = \"cortiq-core\"";

fn main() {
    let lock = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("Cargo.lock");
    let text = fs::read_to_string(&lock).expect("Cargo.lock lies beside Cargo.toml");
    let version = text
        .lines()
        .skip_while(|line| line.trim() != CRATE)
        .find_map(|line| line.trim().strip_prefix("version = \"")?.strip_suffix('"'))
        .expect("Cargo.lock names cortiq-core and its version");
    let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    println!("cargo::rustc-check-cfg=cfg(encodes)");
    if numbers.as_slice() >= ENCODES.as_slice() {
        println!("cargo::rustc-cfg=encodes");
    }
    println!("cargo::rustc-env=CORTIQ_CORE_VERSION={version}");
    println!("cargo::rerun-if-changed={}", lock.display());
}
