//! The global allocators that instances can use: `bench --allocator`.
//!
//! A build with the feature `mimalloc` has two allocators. A process chooses one when it allocates
//! for the first time, by a variable of its environment; the system's if it is not set. Children of the coordinator are started
//! with that variable. So mechanisms with both allocators take turns in the same slices.

// An implementation of `GlobalAlloc` is unsafe.
#[cfg(feature = "mimalloc")]
#[allow(unsafe_code)]
mod switch;
mod variable;

use anyhow::{Result, bail};
use clap::ValueEnum;
use estafette_measure::Registry;
use estafette_measure::spec::Standing;
use estafette_measure::variant::Variant;

use self::variable::VARIABLE;

/// A global allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Allocator {
    /// That of the C library.
    System,
    /// <https://github.com/microsoft/mimalloc>.
    Mimalloc,
}

impl Allocator {
    /// Its name, as in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Allocator::System => "system",
            Allocator::Mimalloc => "mimalloc",
        }
    }

    /// The allocator of this process, and of its children unless they are started with another.
    pub(crate) fn current() -> Allocator {
        #[cfg(feature = "mimalloc")]
        if switch::is_mimalloc() {
            return Allocator::Mimalloc;
        }
        Allocator::System
    }

    /// Checks that this build has the allocator.
    fn check(self) -> Result<()> {
        if self == Allocator::Mimalloc && !cfg!(feature = "mimalloc") {
            bail!("--allocator mimalloc: this build has only the system's allocator; build with `--features mimalloc`");
        }
        Ok(())
    }
}

/// Returns the registry in which every mechanism runs with the first of `allocators`. For each of
/// the others it also has every candidate as `NAME@ALLOCATOR`. Without `allocators`, mechanisms run
/// with that of this process.
///
/// # Errors
/// If this build does not have an allocator, or if one is named twice.
pub(crate) fn with_allocators(registry: &Registry, allocators: &[Allocator]) -> Result<Registry> {
    let Some((&first, others)) = allocators.split_first() else { return Ok(registry.clone()) };
    for (at, &allocator) in allocators.iter().enumerate() {
        allocator.check()?;
        if allocators[..at].contains(&allocator) {
            bail!("--allocator names {} twice: name each once", allocator.name());
        }
    }
    let variable = |allocator: Allocator| (VARIABLE.to_string_lossy().into_owned(), allocator.name().to_owned());
    let mut extended = match first == Allocator::current() {
        true => registry.clone(),
        false => registry.map(|entry| Variant::with_environment(entry, None, variable(first))),
    };
    for &other in others {
        // Where nothing is allocated for a message, the rows would be the same.
        for entry in registry.iter().filter(|entry| entry.spec().standing == Standing::Candidate) {
            extended = extended.enrol(Variant::with_environment(entry.clone(), Some(other.name()), variable(other)));
        }
    }
    Ok(extended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_that_is_missing_or_named_twice_is_an_error() {
        let error = |allocators: &[Allocator]| with_allocators(&Registry::new(), allocators).unwrap_err().to_string();
        assert!(error(&[Allocator::System, Allocator::System]).contains("twice"));
        if !cfg!(feature = "mimalloc") {
            assert!(error(&[Allocator::Mimalloc]).contains("--features mimalloc"));
        }
    }

    #[test]
    fn names_are_those_of_the_option() {
        for &allocator in Allocator::value_variants() {
            assert_eq!(allocator.to_possible_value().unwrap().get_name(), allocator.name());
        }
    }
}
