//! The global allocators that instances can use: `bench --allocator`.
//!
//! A build with the feature `mimalloc` has two allocators. A process chooses one when it allocates
//! for the first time, by a variable of its environment; the system's if it is not set. The command
//! replaces itself by one with the first allocator that is asked for, and its children inherit the
//! choice. Rows of another allocator have children with another choice, so mechanisms with both
//! allocators take turns in the same slices.

// An implementation of `GlobalAlloc` is unsafe.
#[cfg(feature = "mimalloc")]
#[allow(unsafe_code)]
mod switch;
mod variable;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
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

    /// Checks that a build with or without the feature `mimalloc` has the allocator.
    fn check(self, has_mimalloc: bool) -> Result<()> {
        if self == Allocator::Mimalloc && !has_mimalloc {
            bail!("mimalloc: this build has only the system's allocator; build with `--features mimalloc`");
        }
        Ok(())
    }
}

/// Checks the variable of the environment that chooses an allocator.
///
/// # Errors
/// If its value is no allocator of this build.
pub(crate) fn check_environment() -> Result<()> {
    let (variable, _) = choice(Allocator::System);
    match std::env::var_os(variable) {
        Some(value) if !value.is_empty() => check_value(&value, cfg!(feature = "mimalloc")),
        _ => Ok(()),
    }
}

/// Checks a value of the variable, in a build with or without the feature `mimalloc`.
fn check_value(value: &OsStr, has_mimalloc: bool) -> Result<()> {
    let name = VARIABLE.to_string_lossy();
    let known = Allocator::value_variants();
    let Some(allocator) = known.iter().find(|allocator| allocator.name() == value) else {
        let known: Vec<&str> = known.iter().map(|allocator| allocator.name()).collect();
        bail!("{name} is `{}`, which is no allocator: set it to {}, or unset it", value.display(), known.join(" or "));
    };
    allocator.check(has_mimalloc).with_context(|| format!("{name} in the environment"))
}

/// Checks the values of `--allocator`. If the first is not the allocator of this process, replaces
/// this process by one of the same program and arguments that has it.
///
/// # Errors
/// If this build does not have an allocator, if one is named twice, or if the process cannot be
/// replaced.
pub(crate) fn use_first(allocators: &[Allocator]) -> Result<()> {
    for (at, &allocator) in allocators.iter().enumerate() {
        allocator.check(cfg!(feature = "mimalloc")).context("--allocator")?;
        if allocators[..at].contains(&allocator) {
            bail!("--allocator names {} twice: name each once", allocator.name());
        }
    }
    match allocators.first() {
        Some(&first) if first != Allocator::current() => replace_process(first).map(|never| match never {}),
        _ => Ok(()),
    }
}

/// Executes this program again, with the same arguments and another allocator.
fn replace_process(allocator: Allocator) -> Result<Infallible> {
    let mut arguments = std::env::args_os();
    let name: OsString = arguments.next().unwrap_or_default();
    let (variable, value) = choice(allocator);
    let error = Command::new("/proc/self/exe").arg0(name).args(arguments).env(variable, value).exec();
    Err(anyhow!(error).context(format!(
        "cannot execute /proc/self/exe again with another allocator; leave out --allocator and set {}={value}",
        variable.display()
    )))
}

/// The variable that chooses an allocator, and its value.
fn choice(allocator: Allocator) -> (&'static OsStr, &'static str) {
    (OsStr::from_bytes(VARIABLE.to_bytes()), allocator.name())
}

/// Adds each candidate as `NAME@ALLOCATOR` for each of these allocators. For references and
/// baselines, one row suffices.
pub(crate) fn with_candidates_of(registry: &Registry, allocators: &[Allocator]) -> Registry {
    let mut extended = registry.clone();
    for &allocator in allocators {
        let (variable, value) = choice(allocator);
        let variable = (variable.to_string_lossy().into_owned(), value.to_owned());
        for entry in registry.iter().filter(|entry| entry.spec().standing == Standing::Candidate) {
            let variant = Variant::with_environment(entry.clone(), allocator.name(), variable.clone());
            extended = extended.register(variant);
        }
    }
    extended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_that_is_missing_or_named_twice_is_an_error() {
        let error = |allocators: &[Allocator]| use_first(allocators).unwrap_err().to_string();
        assert!(error(&[Allocator::System, Allocator::System]).contains("twice"));
        let without = Allocator::Mimalloc.check(false).unwrap_err().to_string();
        assert!(without.contains("--features mimalloc"), "{without}");
    }

    #[test]
    fn a_value_of_the_environment_must_be_an_allocator_of_this_build() {
        let error =
            |value: &str, has_mimalloc| format!("{:#}", check_value(OsStr::new(value), has_mimalloc).unwrap_err());
        assert!(error("mimaloc", true).contains("set it to system or mimalloc"));
        assert!(error("mimalloc", false).contains("--features mimalloc"));
        check_value(OsStr::new("mimalloc"), true).unwrap();
        check_value(OsStr::new("system"), false).unwrap();
    }

    #[test]
    fn names_are_those_of_the_option() {
        for &allocator in Allocator::value_variants() {
            assert_eq!(allocator.to_possible_value().unwrap().get_name(), allocator.name());
        }
    }
}
