//! build.rs: which release of cortiq-core is linked.
//!
//! Its law: "version" of hello is that of the crate, not of the adapter. The crate names its version nowhere, and what is
//! asked for in Cargo.toml may be a range; the lock file says which one it is.
use std::{env, fs, path::Path};

const CRATE: &str = "name = \"cortiq-core\"";

fn main() {
    let lock = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("Cargo.lock");
    let text = fs::read_to_string(&lock).expect("Cargo.lock lies beside Cargo.toml");
    let version = text
        .lines()
        .skip_while(|line| line.trim() != CRATE)
        .find_map(|line| line.trim().strip_prefix("version = \"")?.strip_suffix('"'))
        .expect("Cargo.lock names cortiq-core and its version");
    println!("cargo::rustc-env=CORTIQ_CORE_VERSION={version}");
    println!("cargo::rerun-if-changed={}", lock.display());
}
