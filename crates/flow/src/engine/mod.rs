//! The WASM engine: inspection, compilation, caching and loading of functions.
//!
//! | file | content |
//! |---|---|
//! | `inspect.rs` | finds a file's ABI and errors in its exports |
//! | `check.rs` | the module inspection of `flow check` |
//! | `cache.rs` | the cache of compiled code |
//! | `wasi.rs` | access to the system, as the pipeline grants it |

pub(crate) mod cache;
pub(crate) mod check;
pub(crate) mod inspect;
pub(crate) mod wasi;

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// The size of the stack for a function's calls in bytes.
const WASM_STACK: usize = 1 << 20;

/// An engine that compiles functions, or runs up to `instances` of them. Compiling and running need
/// the same settings: compiled code can only be loaded by an engine with the settings of the one
/// that compiled it.
///
/// # Errors
///
/// If this machine cannot run WASM.
pub(crate) fn engine(instances: u32) -> wasmtime::Result<Engine> {
    // During a reload, an instance exists twice. A component may consist of several core instances.
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
