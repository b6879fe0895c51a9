//! The WASM engine: how functions are inspected, compiled, cached and loaded.
//!
//! | file | what it holds |
//! |---|---|
//! | `inspect.rs` | which ABI a file speaks, and what is wrong with its exports |
//! | `check.rs` | what `flow check` says about a module |
//! | `cache.rs` | compiled code, kept between runs |
//! | `wasi.rs` | what a function may use of the system: only what its pipeline grants |

pub(crate) mod cache;
pub(crate) mod check;
pub(crate) mod inspect;
pub(crate) mod wasi;

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// The stack of a function's calls, in bytes.
const WASM_STACK: usize = 1 << 20;

/// The engine that compiles functions, and the one that runs up to `instances` of them. Both have the same settings, as
/// compiled code can only be loaded by an engine like the one that made it.
///
/// # Errors
///
/// If this machine cannot run WASM code.
pub(crate) fn engine(instances: u32) -> wasmtime::Result<Engine> {
    // Two generations of an instance are alive while it is reloaded. A component may consist of several core instances.
    let alive = instances.saturating_mul(2);
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(alive)
        .total_core_instances(alive.saturating_mul(16))
        .total_memories(alive.saturating_mul(2))
        .total_tables(alive.saturating_mul(8))
        .max_memories_per_component(8)
        .max_tables_per_component(32)
        .max_core_instances_per_component(64)
        .max_core_instance_size(4 << 20)
        .max_component_instance_size(4 << 20)
        .table_elements(1 << 20)
        .total_stacks(alive);
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config)
}
