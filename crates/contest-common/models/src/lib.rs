//! Runs the loom models: `RUSTFLAGS="--cfg loom" cargo test --release models` in this folder.
#![cfg(loom)]

#[path = "../../src/reference_ring/mod.rs"]
pub mod reference_ring;
