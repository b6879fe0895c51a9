//! Runs the models: `RUSTFLAGS="--cfg loom" cargo test --release models` in this folder.
#![cfg(loom)]

#[path = "../../src/limit_ring/mod.rs"]
pub mod limit_ring;
